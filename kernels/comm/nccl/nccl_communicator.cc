#include "kernels/comm/nccl/nccl_communicator.h"

#include <cuda_runtime_api.h>
#include <sched.h>

#include <chrono>
#include <string>
#include <utility>

#include "absl/memory/memory.h"
#include "base/status_macros.h"
#include "kernels/comm/bytes.h"
#include "kernels/device/cuda/core.h"

namespace weft::comm::nccl {
namespace {

// Bytes are moved, whatever they mean.
constexpr ncclDataType_t kByte = ncclInt8;

// Sends and receives that belong together. The first error counts, and the
// group is ended in any case.
class P2pGroup {
 public:
  P2pGroup(ncclComm_t comm, cudaStream_t stream)
      : comm_(comm), stream_(stream) {
    Note(ncclGroupStart());
  }

  void Send(const void* data, int64_t bytes, int peer) {
    Note(ncclSend(data, bytes, kByte, peer, comm_, stream_));
  }
  void Recv(void* data, int64_t bytes, int peer) {
    Note(ncclRecv(data, bytes, kByte, peer, comm_, stream_));
  }
  ncclResult_t End() {
    Note(ncclGroupEnd());
    return result_;
  }

 private:
  void Note(ncclResult_t result) {
    if (result_ == ncclSuccess || result_ == ncclInProgress) result_ = result;
  }

  const ncclComm_t comm_;
  const cudaStream_t stream_;
  ncclResult_t result_ = ncclSuccess;
};

// A stream of its own, for what is done before any work.
class TemporaryStream {
 public:
  TemporaryStream() {
    status_ = device::cuda::ToStatus(
        cudaStreamCreateWithFlags(&handle_, cudaStreamNonBlocking),
        "creating a stream");
  }
  ~TemporaryStream() {
    if (handle_ != nullptr) (void)cudaStreamDestroy(handle_);
  }
  TemporaryStream(const TemporaryStream&) = delete;
  TemporaryStream& operator=(const TemporaryStream&) = delete;

  const absl::Status& status() const { return status_; }
  cudaStream_t handle() const { return handle_; }

 private:
  absl::Status status_;
  cudaStream_t handle_ = nullptr;
};

}  // namespace

NcclCommunicator::NcclCommunicator(std::shared_ptr<cuda::Link> link,
                                   cuda::GroupOptions group,
                                   std::unique_ptr<cuda::Progress> progress)
    : CudaCommunicator(std::move(link), std::move(group), std::move(progress)) {
}

absl::StatusOr<std::unique_ptr<NcclCommunicator>> NcclCommunicator::Create(
    std::shared_ptr<cuda::Link> link, cuda::GroupOptions group,
    const ncclUniqueId& id) {
  ASSIGN_OR_RETURN(auto progress, cuda::Progress::Create());
  auto communicator = absl::WrapUnique(new NcclCommunicator(
      std::move(link), std::move(group), std::move(progress)));
  if (communicator->size() > 1) RETURN_IF_ERROR(communicator->Open(id));
  return communicator;
}

absl::Status NcclCommunicator::Open(const ncclUniqueId& id) {
  cuda::Watchdog& watchdog = *link().watchdog;
  HandleOptions options;
  options.name = std::string(name());
  options.rank = rank();
  options.size = size();
  options.id = id;
  ASSIGN_OR_RETURN(token_, watchdog.options().device->Allocate(
                               2 * size(), device::MemoryCategory::kStaging));
  ASSIGN_OR_RETURN(handle_, NcclHandle::Create(options, watchdog));
  watchdog.Add(this);
  return Connect();
}

NcclCommunicator::~NcclCommunicator() { link().watchdog->Remove(this); }

absl::Status NcclCommunicator::Connect() {
  TemporaryStream stream;
  RETURN_IF_ERROR(stream.status());
  std::byte* const other = token_->data() + size();
  std::vector<Segment> all;
  for (int peer = 0; peer < size(); ++peer) all.push_back({peer, peer, 1});
  RETURN_IF_ERROR(Meet(stream.handle()));
  RETURN_IF_ERROR(Exchange(token_->data(), all, other, all, stream.handle()));
  RETURN_IF_ERROR(Spread(token_->data(), 1, /*root=*/0, stream.handle()));
  const auto start = std::chrono::steady_clock::now();
  for (;;) {
    const cudaError_t done = cudaStreamQuery(stream.handle());
    if (done != cudaErrorNotReady) {
      return device::cuda::ToStatus(done, "opening connections");
    }
    RETURN_IF_ERROR(link().watchdog->CheckWait(start, "opening connections"));
    ::sched_yield();
  }
}

absl::Status NcclCommunicator::CheckTransport() { return handle_->Check(); }

void NcclCommunicator::Abort() { handle_->Abort(); }

absl::Status NcclCommunicator::Gather(const void* send, void* recv,
                                      int64_t bytes, cudaStream_t stream) {
  return handle_->Call("ncclAllGather", [&](ncclComm_t comm) {
    return ncclAllGather(send, recv, bytes, kByte, comm, stream);
  });
}

absl::Status NcclCommunicator::Scatter(const void* send, void* others,
                                       int64_t bytes, cudaStream_t stream) {
  return handle_->Call("exchanging slices", [&](ncclComm_t comm) {
    P2pGroup group(comm, stream);
    std::byte* place = static_cast<std::byte*>(others);
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank()) continue;
      group.Send(At(send, peer * bytes), bytes, peer);
      group.Recv(place, bytes, peer);
      place += bytes;
    }
    return group.End();
  });
}

absl::Status NcclCommunicator::Exchange(const void* send,
                                        absl::Span<const Segment> sends,
                                        void* recv,
                                        absl::Span<const Segment> recvs,
                                        cudaStream_t stream) {
  return handle_->Call("exchanging segments", [&](ncclComm_t comm) {
    P2pGroup group(comm, stream);
    for (const Segment& s : sends) {
      if (s.peer == rank() || s.bytes == 0) continue;
      group.Send(At(send, s.offset), s.bytes, s.peer);
    }
    for (const Segment& s : recvs) {
      if (s.peer == rank() || s.bytes == 0) continue;
      group.Recv(At(recv, s.offset), s.bytes, s.peer);
    }
    return group.End();
  });
}

absl::Status NcclCommunicator::Spread(void* data, int64_t bytes, int root,
                                      cudaStream_t stream) {
  return handle_->Call("ncclBroadcast", [&](ncclComm_t comm) {
    return ncclBroadcast(data, data, bytes, kByte, root, comm, stream);
  });
}

absl::Status NcclCommunicator::Meet(cudaStream_t stream) {
  return handle_->Call("ncclAllGather", [&](ncclComm_t comm) {
    return ncclAllGather(token_->data() + rank(), token_->data(), 1, kByte,
                         comm, stream);
  });
}

}  // namespace weft::comm::nccl

#include "kernels/comm/cuda/communicator.h"

#include <sched.h>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/comm/bytes.h"
#include "kernels/comm/segments.h"
#include "kernels/device/cuda/core.h"
#include "kernels/device/cuda/launch.h"

namespace weft::comm::cuda {
namespace {

using device::cuda::ToStatus;

SumType SumTypeOf(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return SumType::kF64;
    case DType::kBf16:
      return SumType::kBf16;
    default:
      return SumType::kF32;
  }
}

// Between any two of device and host memory.
absl::Status CopyAsync(void* to, const void* from, int64_t bytes,
                       cudaStream_t stream) {
  if (bytes == 0 || to == from) return absl::OkStatus();
  return ToStatus(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream),
                  "copying inside a collective");
}

absl::StatusOr<bool> IsCapturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  RETURN_IF_ERROR(ToStatus(cudaStreamIsCapturing(stream, &status),
                           "asking whether a stream is captured"));
  return status == cudaStreamCaptureStatusActive;
}

int64_t BytesToOthers(absl::Span<const Segment> sends, int rank) {
  int64_t bytes = 0;
  for (const Segment& segment : sends) {
    if (segment.peer != rank) bytes += segment.bytes;
  }
  return bytes;
}

}  // namespace

absl::Status CudaCommunicator::Reserve(int64_t bytes) {
  RETURN_IF_ERROR(link_->watchdog->status());
  RETURN_IF_ERROR(CheckBytes(bytes));
  if (size() == 1) return absl::OkStatus();
  return link_->staging.Get(bytes).status();
}

absl::Status CudaCommunicator::Run(CollectiveKind kind,
                                   const CollectiveTag& tag,
                                   const absl::Status& valid,
                                   device::Stream& stream, Body body) {
  const CollectiveId id = {kind, sequence_++, tag};
  Watchdog& watchdog = *link_->watchdog;
  RETURN_IF_ERROR(watchdog.CheckUsable(name(), id));
  absl::Status status = valid;
  if (status.ok()) status = Enqueue(id, device::cuda::Handle(stream), body);
  if (status.ok()) return status;
  // Not the consequence of what the watchdog has found meanwhile.
  if (watchdog.failed()) return watchdog.CheckUsable(name(), id);
  status = Annotate(status, Describe(name(), id, ranks()[rank()]));
  watchdog.Fail(status);
  return status;
}

absl::Status CudaCommunicator::Enqueue(const CollectiveId& id,
                                       cudaStream_t stream, Body body) {
  if (size() == 1) return body(stream);
  ASSIGN_OR_RETURN(is_captured_, IsCapturing(stream));
  running_ = id;
  if (is_captured_) return body(stream);
  while (!progress_->HasRoom()) {
    if (link_->watchdog->failed()) return absl::CancelledError("failed before");
    ::sched_yield();
  }
  progress_->Begin(id);
  RETURN_IF_ERROR(body(stream));
  return progress_->End(stream);
}

absl::Status CudaCommunicator::AllGather(const void* send, void* recv,
                                         int64_t bytes, device::Stream& stream,
                                         const CollectiveTag& tag) {
  return Run(CollectiveKind::kAllGather, tag, CheckBytes(bytes), stream,
             [&](cudaStream_t handle) {
               return GatherSlices(send, recv, bytes, handle);
             });
}

absl::Status CudaCommunicator::GatherSlices(const void* send, void* recv,
                                            int64_t bytes,
                                            cudaStream_t stream) {
  if (size() == 1) return CopyAsync(recv, send, bytes, stream);
  if (bytes == 0) return absl::OkStatus();
  CountSent(bytes * (size() - 1));
  if (IsDeviceMemory(send) && IsDeviceMemory(recv)) {
    return Gather(send, recv, bytes, stream);
  }
  ASSIGN_OR_RETURN(std::byte* const staged, link_->staging.Get(bytes * size()));
  std::byte* const own = staged + rank() * bytes;
  RETURN_IF_ERROR(CopyAsync(own, send, bytes, stream));
  RETURN_IF_ERROR(Gather(own, staged, bytes, stream));
  return CopyAsync(recv, staged, bytes * size(), stream);
}

absl::Status CudaCommunicator::ReduceScatter(const void* send, void* recv,
                                             int64_t elements, DType dtype,
                                             device::Stream& stream,
                                             const CollectiveTag& tag) {
  return Run(CollectiveKind::kReduceScatter, tag,
             CheckSummable(dtype, elements), stream, [&](cudaStream_t handle) {
               return ReduceSlices(send, recv, elements, dtype, handle);
             });
}

absl::Status CudaCommunicator::ReduceSlices(const void* send, void* recv,
                                            int64_t elements, DType dtype,
                                            cudaStream_t stream) {
  const int64_t bytes = elements * SizeOf(dtype);
  if (size() == 1) return CopyAsync(recv, send, bytes, stream);
  if (bytes == 0) return absl::OkStatus();
  CountSent(bytes * (size() - 1));
  ASSIGN_OR_RETURN(std::byte* const others,
                   link_->staging.Get(bytes * (size() - 1)));
  RETURN_IF_ERROR(Scatter(send, others, bytes, stream));
  RankSlices slices;
  slices.others = others;
  slices.own = At(send, rank() * bytes);
  slices.rank = rank();
  slices.size = size();
  slices.elements = elements;
  return ToStatus(SumInRankOrder(slices, SumTypeOf(dtype), recv, stream),
                  "summing over ranks");
}

absl::Status CudaCommunicator::AllReduce(void* data, int64_t elements,
                                         DType dtype, device::Stream& stream,
                                         const CollectiveTag& tag) {
  return Run(CollectiveKind::kAllReduce, tag,
             CheckDivisible(dtype, elements, size()), stream,
             [&](cudaStream_t handle) -> absl::Status {
               const int64_t slice = elements / size();
               const int64_t bytes = slice * SizeOf(dtype);
               void* const own = At(data, rank() * bytes);
               RETURN_IF_ERROR(ReduceSlices(data, own, slice, dtype, handle));
               return GatherSlices(own, data, bytes, handle);
             });
}

absl::Status CudaCommunicator::AllToAllV(const void* send,
                                         absl::Span<const Segment> sends,
                                         void* recv,
                                         absl::Span<const Segment> recvs,
                                         device::Stream& stream,
                                         const CollectiveTag& tag) {
  absl::Status valid = CheckSegments(sends, size());
  valid.Update(CheckSegments(recvs, size()));
  return Run(
      CollectiveKind::kAllToAllV, tag, valid, stream,
      [&](cudaStream_t handle) -> absl::Status {
        RETURN_IF_ERROR(CopyOwnSegments(send, sends, recv, recvs, handle));
        if (size() == 1) return absl::OkStatus();
        CountSent(BytesToOthers(sends, rank()));
        return Exchange(send, sends, recv, recvs, handle);
      });
}

absl::Status CudaCommunicator::CopyOwnSegments(const void* send,
                                               absl::Span<const Segment> sends,
                                               void* recv,
                                               absl::Span<const Segment> recvs,
                                               cudaStream_t stream) {
  pieces_.clear();
  RETURN_IF_ERROR(
      PairSegments(sends, rank(), recvs, rank(),
                   [&](const Segment& from, const Segment& to) {
                     pieces_.push_back({from.offset, to.offset, to.bytes});
                   }));
  return ToStatus(
      CopyPieces(send, recv, pieces_.data(), pieces_.size(), stream),
      "copying segments");
}

absl::Status CudaCommunicator::Broadcast(void* data, int64_t bytes, int root,
                                         device::Stream& stream,
                                         const CollectiveTag& tag) {
  return Run(
      CollectiveKind::kBroadcast, tag, CheckBroadcast(bytes, root, size()),
      stream, [&](cudaStream_t handle) -> absl::Status {
        if (size() == 1 || bytes == 0) return absl::OkStatus();
        if (rank() == root) CountSent(bytes * (size() - 1));
        if (IsDeviceMemory(data)) {
          return Spread(data, bytes, root, handle);
        }
        ASSIGN_OR_RETURN(std::byte* const staged, link_->staging.Get(bytes));
        RETURN_IF_ERROR(CopyAsync(staged, data, bytes, handle));
        RETURN_IF_ERROR(Spread(staged, bytes, root, handle));
        return CopyAsync(data, staged, bytes, handle);
      });
}

absl::Status CudaCommunicator::Barrier(device::Stream& stream,
                                       const CollectiveTag& tag) {
  return Run(CollectiveKind::kBarrier, tag, absl::OkStatus(), stream,
             [&](cudaStream_t handle) {
               return size() == 1 ? absl::OkStatus() : Meet(handle);
             });
}

}  // namespace weft::comm::cuda

#include "kernels/comm/cuda/testing/staged_communicator.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <vector>

#include "absl/memory/memory.h"
#include "base/dtype.h"
#include "base/status_macros.h"
#include "glog/logging.h"
#include "kernels/device/cuda/launch.h"

namespace weft::comm::cuda {
namespace {

constexpr int64_t kGuardBytes = 64;
constexpr int kGuardByte = 0xA5;

void CheckCuda(cudaError_t error) {
  CHECK(error == cudaSuccess) << cudaGetErrorString(error);
}

// On the rank's own stream: another may share a queue with one of another rank,
// which waits there for this one.
void Copy(void* to, const void* from, int64_t bytes, device::Stream& stream) {
  const cudaStream_t own = device::cuda::Handle(stream);
  CheckCuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, own));
  CheckCuda(cudaStreamSynchronize(own));
}

// Where the last segment ends.
int64_t EndOf(absl::Span<const Segment> segments) {
  int64_t end = 0;
  for (const Segment& segment : segments) {
    if (segment.offset < 0 || segment.bytes < 0) return 0;
    end = std::max(end, segment.offset + segment.bytes);
  }
  return end;
}

}  // namespace

absl::StatusOr<std::unique_ptr<StagedCommunicator>> StagedCommunicator::Create(
    std::unique_ptr<Communicator> inner, device::Device& device) {
  ASSIGN_OR_RETURN(
      auto memory,
      device.Allocate(2 * kStagedBytes, device::MemoryCategory::kArena));
  RETURN_IF_ERROR(inner->Reserve(kStagedBytes));
  RETURN_IF_ERROR(inner->RegisterMemory({memory.get()}));
  return absl::WrapUnique(
      new StagedCommunicator(std::move(inner), std::move(memory)));
}

StagedCommunicator::Range StagedCommunicator::Sent(const void* host,
                                                   int64_t bytes) const {
  CHECK_LE(bytes, kStagedBytes);
  return {const_cast<void*>(host), memory_->data(),
          std::max<int64_t>(bytes, 0)};
}

StagedCommunicator::Range StagedCommunicator::Received(void* host,
                                                       int64_t bytes) const {
  CHECK_LE(bytes, kStagedBytes - kGuardBytes);
  return {host, memory_->data() + kStagedBytes, std::max<int64_t>(bytes, 0)};
}

void StagedCommunicator::CopyIn(const Range& range, device::Stream& stream) {
  if (range.bytes > 0) Copy(range.device, range.host, range.bytes, stream);
}

void StagedCommunicator::Guard(const Range& range, device::Stream& stream) {
  const std::vector<unsigned char> guard(kGuardBytes, kGuardByte);
  Copy(range.device + range.bytes, guard.data(), kGuardBytes, stream);
}

absl::Status StagedCommunicator::Finish(const absl::Status& called,
                                        const Range& range,
                                        device::Stream& stream) {
  RETURN_IF_ERROR(called);
  RETURN_IF_ERROR(stream.Synchronize());
  std::vector<unsigned char> guard(kGuardBytes);
  Copy(guard.data(), range.device + range.bytes, kGuardBytes, stream);
  for (unsigned char byte : guard) {
    if (byte != kGuardByte) return absl::InternalError("wrote beyond the end");
  }
  if (range.bytes == 0) return absl::OkStatus();
  Copy(range.host, range.device, range.bytes, stream);
  return absl::OkStatus();
}

absl::Status StagedCommunicator::AllGather(const void* send, void* recv,
                                           int64_t bytes,
                                           device::Stream& stream,
                                           const CollectiveTag& tag) {
  const Range received = Received(recv, bytes * size());
  Range sent = Sent(send, bytes);
  const int64_t place =
      static_cast<const char*>(send) - static_cast<const char*>(recv);
  if (place == rank() * bytes) sent.device = received.device + place;
  Guard(received, stream);
  CopyIn(sent, stream);
  return Finish(
      inner_->AllGather(sent.device, received.device, bytes, stream, tag),
      received, stream);
}

absl::Status StagedCommunicator::ReduceScatter(const void* send, void* recv,
                                               int64_t elements, DType dtype,
                                               device::Stream& stream,
                                               const CollectiveTag& tag) {
  const int64_t bytes = elements * SizeOf(dtype);
  const Range sent = Sent(send, bytes * size());
  Range received = Received(recv, bytes);
  const int64_t place =
      static_cast<const char*>(recv) - static_cast<const char*>(send);
  const bool is_in_place = place == rank() * bytes;
  // Other slices lie behind the own one.
  if (!is_in_place) Guard(received, stream);
  CopyIn(sent, stream);
  if (!is_in_place) {
    return Finish(inner_->ReduceScatter(sent.device, received.device, elements,
                                        dtype, stream, tag),
                  received, stream);
  }
  Guard(sent, stream);
  return Finish(inner_->ReduceScatter(sent.device,
                                      sent.device + std::max<int64_t>(place, 0),
                                      elements, dtype, stream, tag),
                sent, stream);
}

absl::Status StagedCommunicator::AllReduce(void* data, int64_t elements,
                                           DType dtype, device::Stream& stream,
                                           const CollectiveTag& tag) {
  const Range range = Received(data, elements * SizeOf(dtype));
  Guard(range, stream);
  CopyIn(range, stream);
  return Finish(inner_->AllReduce(range.device, elements, dtype, stream, tag),
                range, stream);
}

absl::Status StagedCommunicator::AllToAllV(const void* send,
                                           absl::Span<const Segment> sends,
                                           void* recv,
                                           absl::Span<const Segment> recvs,
                                           device::Stream& stream,
                                           const CollectiveTag& tag) {
  const Range sent = Sent(send, EndOf(sends));
  const Range received = Received(recv, EndOf(recvs));
  Guard(received, stream);
  CopyIn(sent, stream);
  CopyIn(received, stream);  // what lies between segments
  return Finish(inner_->AllToAllV(sent.device, sends, received.device, recvs,
                                  stream, tag),
                received, stream);
}

absl::Status StagedCommunicator::Broadcast(void* data, int64_t bytes, int root,
                                           device::Stream& stream,
                                           const CollectiveTag& tag) {
  const Range range = Received(data, bytes);
  Guard(range, stream);
  CopyIn(range, stream);
  return Finish(inner_->Broadcast(range.device, bytes, root, stream, tag),
                range, stream);
}

absl::Status StagedCommunicator::Barrier(device::Stream& stream,
                                         const CollectiveTag& tag) {
  const Range none = Received(nullptr, 0);
  Guard(none, stream);
  return Finish(inner_->Barrier(stream, tag), none, stream);
}

}  // namespace weft::comm::cuda

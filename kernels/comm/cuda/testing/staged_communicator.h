// A communicator of a CUDA device for tests that were written for the CPU:
// takes memory of the host, and has happened when it returns.
#ifndef WEFT_KERNELS_COMM_CUDA_TESTING_STAGED_COMMUNICATOR_H_
#define WEFT_KERNELS_COMM_CUDA_TESTING_STAGED_COMMUNICATOR_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/comm/communicator.h"
#include "kernels/device/device.h"

namespace weft::comm::cuda {

// Bytes that a StagedCommunicator holds of what is sent, and of what is
// received. More ends the test.
inline constexpr int64_t kStagedBytes = int64_t{24} << 20;

// Copies what is sent to device memory, runs the collective of `inner` there,
// waits for the stream, and copies back. An error is that of the call or, when
// it comes to light later, that of the device.
//
// Bytes behind what is received are checked not to change.
class StagedCommunicator : public Communicator {
 public:
  // Reserves staging, takes memory and registers it with `inner`.
  static absl::StatusOr<std::unique_ptr<StagedCommunicator>> Create(
      std::unique_ptr<Communicator> inner, device::Device& device);

  Communicator& inner() { return *inner_; }

  absl::string_view name() const override { return inner_->name(); }
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  int64_t wire_bytes() const override { return inner_->wire_bytes(); }
  absl::Status Reserve(int64_t bytes) override {
    return inner_->Reserve(bytes);
  }
  absl::Status AllGather(const void* send, void* recv, int64_t bytes,
                         device::Stream& stream,
                         const CollectiveTag& tag) override;
  absl::Status ReduceScatter(const void* send, void* recv, int64_t elements,
                             DType dtype, device::Stream& stream,
                             const CollectiveTag& tag) override;
  absl::Status AllReduce(void* data, int64_t elements, DType dtype,
                         device::Stream& stream,
                         const CollectiveTag& tag) override;
  absl::Status AllToAllV(const void* send, absl::Span<const Segment> sends,
                         void* recv, absl::Span<const Segment> recvs,
                         device::Stream& stream,
                         const CollectiveTag& tag) override;
  absl::Status Broadcast(void* data, int64_t bytes, int root,
                         device::Stream& stream,
                         const CollectiveTag& tag) override;
  absl::Status Barrier(device::Stream& stream,
                       const CollectiveTag& tag) override;

 private:
  StagedCommunicator(std::unique_ptr<Communicator> inner,
                     std::unique_ptr<device::Buffer> memory)
      : memory_(std::move(memory)), inner_(std::move(inner)) {}

  // A range of host memory and where it lies on the device.
  struct Range {
    void* host = nullptr;
    std::byte* device = nullptr;
    int64_t bytes = 0;
  };
  // Of what is sent and of what is received. A range of no legal size is empty:
  // `inner` refuses it.
  Range Sent(const void* host, int64_t bytes) const;
  Range Received(void* host, int64_t bytes) const;

  static void CopyIn(const Range& range, device::Stream& stream);
  // Marks the bytes behind it.
  static void Guard(const Range& range, device::Stream& stream);
  // What `called` or else the device says; if that is OK, copies back.
  static absl::Status Finish(const absl::Status& called, const Range& range,
                             device::Stream& stream);

  const std::unique_ptr<device::Buffer> memory_;  // outlives `inner_`
  const std::unique_ptr<Communicator> inner_;
};

}  // namespace weft::comm::cuda

#endif  // WEFT_KERNELS_COMM_CUDA_TESTING_STAGED_COMMUNICATOR_H_

// What the parts of one CUDA device share: which GPU, the first error, the
// accounts, the counters and the origin of timestamps.
#ifndef WEFT_KERNELS_DEVICE_CUDA_CORE_H_
#define WEFT_KERNELS_DEVICE_CUDA_CORE_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/device/accounts.h"
#include "kernels/device/counters.h"
#include "kernels/device/device.h"
#include "kernels/device/error_state.h"

namespace weft::device::cuda {

// OK for cudaSuccess; else "<what>: <name>: <description>". RESOURCE_EXHAUSTED
// for memory that is not there, else INTERNAL.
absl::Status ToStatus(cudaError_t error, absl::string_view what);

// Shared by the device and its streams, events and buffers, which may outlive
// it. Thread-safe, but for `origin` and what belongs to it, which is the
// launching thread's.
struct Core {
  Core(int ordinal, int sm_count, int64_t memory_limit_bytes)
      : ordinal(ordinal), sm_count(sm_count), accounts(memory_limit_bytes) {}
  ~Core();

  // Makes this device that of the calling thread.
  absl::Status Use() const;

  const int ordinal;
  const int sm_count;
  ErrorState errors;
  MemoryAccounts accounts;
  Counters counters;

  // Timestamps are taken relative to an event recorded while none was pending:
  // distances stay short, and so exact (they are told in fp32 milliseconds).
  cudaEvent_t origin = nullptr;
  int64_t origin_ns = 0;
  int64_t pending_timestamps = 0;
};

absl::StatusOr<std::unique_ptr<Buffer>> AllocateDevice(
    std::shared_ptr<Core> core, int64_t bytes, MemoryCategory category);

// Pinned and mapped; no account is charged.
absl::StatusOr<std::unique_ptr<Buffer>> AllocatePinned(
    std::shared_ptr<Core> core, int64_t bytes);

}  // namespace weft::device::cuda

#endif  // WEFT_KERNELS_DEVICE_CUDA_CORE_H_

// What the parts of one CPU device share.
#ifndef WEFT_KERNELS_DEVICE_CPU_DEVICE_CORE_H_
#define WEFT_KERNELS_DEVICE_CPU_DEVICE_CORE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "kernels/device/accounts.h"
#include "kernels/device/counters.h"
#include "kernels/device/device.h"
#include "kernels/device/error_state.h"

namespace weft::device::cpu {

// Something with a thread that the device stops before it goes.
class Stoppable {
 public:
  virtual ~Stoppable() = default;
  virtual void Stop() = 0;
};

// The streams that are alive.
//
// Thread-safe, but none may be removed during StopAll().
class StreamRegistry {
 public:
  void Add(Stoppable* stream);
  void Remove(Stoppable* stream);
  // Stops every stream, with no lock held.
  void StopAll();

 private:
  Mutex mu_;
  std::vector<Stoppable*> streams_ ABSL_GUARDED_BY(mu_);
};

// Shared because streams, events and buffers may outlive the device's handle.
struct DeviceCore {
  explicit DeviceCore(int64_t memory_limit_bytes)
      : accounts(memory_limit_bytes) {}

  ErrorState errors;
  StreamRegistry streams;
  MemoryAccounts accounts;
  Counters counters;
};

// Maps memory and charges it to `category` of `core`'s accounts.
absl::StatusOr<std::unique_ptr<Buffer>> AllocateAccounted(
    std::shared_ptr<DeviceCore> core, int64_t bytes, MemoryCategory category);

// Maps memory that no account is charged for.
absl::StatusOr<std::unique_ptr<Buffer>> AllocateUnaccounted(int64_t bytes);

}  // namespace weft::device::cpu

#endif  // WEFT_KERNELS_DEVICE_CPU_DEVICE_CORE_H_

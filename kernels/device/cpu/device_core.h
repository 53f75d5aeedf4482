// What the parts of one CPU device share: the first error and the accounts.
#ifndef WEFT_KERNELS_DEVICE_CPU_DEVICE_CORE_H_
#define WEFT_KERNELS_DEVICE_CPU_DEVICE_CORE_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "kernels/device/device.h"

namespace weft::device::cpu {

// Told when the device fails, so that hosts that wait come back.
class FailureListener {
 public:
  virtual ~FailureListener() = default;
  // Called with the core's lock held; must not call the core.
  virtual void OnFailure() = 0;
};

// Keeps the first error and tells the listeners.
//
// Guarantees: status() is the first error given to Fail(); failed() is true
// from before the first OnFailure() call on.
// Thread-safe.
class ErrorState {
 public:
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  absl::Status status() const;

  // Requires: `error` is not OK.
  void Fail(absl::Status error);

  void AddListener(FailureListener* listener);
  void RemoveListener(FailureListener* listener);

 private:
  std::atomic<bool> failed_{false};
  mutable Mutex mu_;
  absl::Status error_ ABSL_GUARDED_BY(mu_);
  std::vector<FailureListener*> listeners_ ABSL_GUARDED_BY(mu_);
};

// Counts memory by category against a limit.
//
// Thread-safe.
class MemoryAccounts {
 public:
  // `limit_bytes` of 0 means none.
  explicit MemoryAccounts(int64_t limit_bytes)
      : limit_bytes_(limit_bytes > 0 ? limit_bytes
                                     : std::numeric_limits<int64_t>::max()) {}

  // RESOURCE_EXHAUSTED when `bytes` more do not fit.
  absl::Status Take(int64_t bytes, MemoryCategory category);
  void Give(int64_t bytes, MemoryCategory category);

  int64_t in_use(MemoryCategory category) const;
  int64_t in_use() const;
  int64_t peak() const;

 private:
  const int64_t limit_bytes_;
  mutable Mutex mu_;
  std::array<int64_t, kNumMemoryCategories> by_category_
      ABSL_GUARDED_BY(mu_) = {};
  int64_t total_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t peak_ ABSL_GUARDED_BY(mu_) = 0;
};

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
};

// Maps memory and charges it to `category` of `core`'s accounts.
absl::StatusOr<std::unique_ptr<Buffer>> AllocateAccounted(
    std::shared_ptr<DeviceCore> core, int64_t bytes, MemoryCategory category);

// Maps memory that no account is charged for.
absl::StatusOr<std::unique_ptr<Buffer>> AllocateUnaccounted(int64_t bytes);

}  // namespace weft::device::cpu

#endif  // WEFT_KERNELS_DEVICE_CPU_DEVICE_CORE_H_

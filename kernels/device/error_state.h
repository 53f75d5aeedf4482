// For backends: the first error of a device.
#ifndef WEFT_KERNELS_DEVICE_ERROR_STATE_H_
#define WEFT_KERNELS_DEVICE_ERROR_STATE_H_

#include <atomic>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "base/mutex.h"

namespace weft::device {

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

}  // namespace weft::device

#endif  // WEFT_KERNELS_DEVICE_ERROR_STATE_H_

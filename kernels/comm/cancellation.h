// A token that stops collectives which wait.
#ifndef WEFT_KERNELS_COMM_CANCELLATION_H_
#define WEFT_KERNELS_COMM_CANCELLATION_H_

#include <atomic>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"

namespace weft::comm {

// Something that sleeps and must wake when the token fires.
class CancellationListener {
 public:
  virtual ~CancellationListener() = default;
  // Called by the thread that cancels, and by AddListener() when the token has
  // fired already; perhaps by both. Must not call the token's listener methods.
  virtual void OnCancelled() = 0;
};

// Fires once, with a reason, and wakes everybody who sleeps on it: loops that
// poll by event_fd(), waiters on condition variables by a listener.
//
// Requires: it outlives the communicators and listeners that use it.
// Guarantees: the first reason stays. cancelled() is true before anybody wakes.
// Thread-safe.
class Cancellation {
 public:
  static absl::StatusOr<std::unique_ptr<Cancellation>> Create();
  ~Cancellation();

  Cancellation(const Cancellation&) = delete;
  Cancellation& operator=(const Cancellation&) = delete;

  // An OK `reason` counts as CANCELLED without a word.
  void Cancel(absl::Status reason);

  bool cancelled() const { return cancelled_.load(std::memory_order_acquire); }

  // OK as long as the token has not fired.
  absl::Status reason() const;

  // Readable from the moment the token fires on. Only for poll(): never read,
  // written or closed by others.
  int event_fd() const { return event_fd_; }

  void AddListener(CancellationListener* listener);
  // When it returns, `listener` is not being called and will not be.
  void RemoveListener(CancellationListener* listener);

 private:
  explicit Cancellation(int event_fd) : event_fd_(event_fd) {}

  const int event_fd_;
  std::atomic<bool> cancelled_{false};
  mutable Mutex mu_;
  absl::Status reason_ ABSL_GUARDED_BY(mu_);
  // Held while listeners are called. Taken alone, never together with mu_.
  Mutex listeners_mu_;
  std::vector<CancellationListener*> listeners_ ABSL_GUARDED_BY(listeners_mu_);
};

}  // namespace weft::comm

#endif  // WEFT_KERNELS_COMM_CANCELLATION_H_

#include "base/mutex.h"

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "absl/time/time.h"
#include "glog/logging.h"

namespace weft {
namespace {

// Lends a lock that is already held to a std::condition_variable.
class AdoptedLock {
 public:
  explicit AdoptedLock(std::mutex& mu) : lock_(mu, std::adopt_lock) {}
  ~AdoptedLock() { lock_.release(); }
  std::unique_lock<std::mutex>& get() { return lock_; }

 private:
  std::unique_lock<std::mutex> lock_;
};

}  // namespace

std::chrono::steady_clock::time_point DeadlineAfter(absl::Duration timeout) {
  using SteadyClock = std::chrono::steady_clock;
  const SteadyClock::time_point now = SteadyClock::now();
  const absl::Duration most =
      absl::FromChrono(SteadyClock::time_point::max() - now);
  if (timeout >= most) return SteadyClock::time_point::max();
  return now + absl::ToChronoNanoseconds(timeout);
}

void CondVar::Wait(Mutex* mu) {
  AdoptedLock lock(mu->mu_);
  cv_.wait(lock.get());
}

bool CondVar::WaitFor(Mutex* mu, absl::Duration timeout) {
  return WaitUntil(mu, DeadlineAfter(timeout));
}

bool CondVar::WaitUntil(Mutex* mu,
                        std::chrono::steady_clock::time_point deadline) {
  if (deadline == std::chrono::steady_clock::time_point::max()) {
    Wait(mu);
    return true;
  }
  AdoptedLock lock(mu->mu_);
  return cv_.wait_until(lock.get(), deadline) == std::cv_status::no_timeout;
}

// Both classes below signal with the lock held: a waiter, who may destroy the
// object, then wakes only after the last touch of it.

void Notification::Notify() {
  MutexLock lock(&mu_);
  CHECK(!notified_) << "Notify() called twice";
  notified_ = true;
  cv_.SignalAll();
}

bool Notification::HasBeenNotified() const {
  MutexLock lock(&mu_);
  return notified_;
}

void Notification::WaitForNotification() const {
  MutexLock lock(&mu_);
  while (!notified_) cv_.Wait(&mu_);
}

bool Notification::WaitForNotificationWithTimeout(
    absl::Duration timeout) const {
  const auto deadline = DeadlineAfter(timeout);
  MutexLock lock(&mu_);
  while (!notified_) {
    if (!cv_.WaitUntil(&mu_, deadline)) break;
  }
  return notified_;
}

bool BlockingCounter::DecrementCount() {
  MutexLock lock(&mu_);
  CHECK_GT(count_, 0) << "more decrements than the initial count";
  --count_;
  if (count_ > 0) return false;
  cv_.SignalAll();
  return true;
}

void BlockingCounter::Wait() {
  MutexLock lock(&mu_);
  while (count_ > 0) cv_.Wait(&mu_);
}

bool BlockingCounter::WaitWithTimeout(absl::Duration timeout) {
  const auto deadline = DeadlineAfter(timeout);
  MutexLock lock(&mu_);
  while (count_ > 0) {
    if (!cv_.WaitUntil(&mu_, deadline)) break;
  }
  return count_ == 0;
}

}  // namespace weft

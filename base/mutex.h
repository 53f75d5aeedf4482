// Locks and waits, over the standard primitives so that ThreadSanitizer sees
// them, with the annotations that let clang prove which lock guards what.
//
//   class Queue {
//    public:
//     void Push(int x) {
//       MutexLock lock(&mu_);
//       items_.push_back(x);
//       not_empty_.Signal();
//     }
//     int Pop() {
//       MutexLock lock(&mu_);
//       while (items_.empty()) not_empty_.Wait(&mu_);
//       ...
//     }
//
//    private:
//     Mutex mu_;
//     CondVar not_empty_;
//     std::deque<int> items_ ABSL_GUARDED_BY(mu_);
//   };
//
// Do not use absl/synchronization: its locks are reported as races.
#ifndef WEFT_BASE_MUTEX_H_
#define WEFT_BASE_MUTEX_H_

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"

namespace weft {

// A lock that is not recursive.
class ABSL_LOCKABLE Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mu_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mu_.unlock(); }

  // Returns whether the lock was taken.
  bool TryLock() ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true) {
    return mu_.try_lock();
  }

  // Tells the analysis, where it cannot see it, that the caller holds the lock.
  void AssertHeld() const ABSL_ASSERT_EXCLUSIVE_LOCK() {}

 private:
  friend class CondVar;
  std::mutex mu_;
};

// Holds a lock for as long as it lives.
class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex* mu) ABSL_EXCLUSIVE_LOCK_FUNCTION(mu) : mu_(*mu) {
    mu_.Lock();
  }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mu_.Unlock(); }

 private:
  Mutex& mu_;
};

// Waits for a condition over fields that a Mutex guards.
//
// Requires: every wait sits in a loop that tests the condition, because a wait
// may also return for no reason. All waits at one time use one Mutex.
// Thread-safe.
class CondVar {
 public:
  CondVar() = default;
  CondVar(const CondVar&) = delete;
  CondVar& operator=(const CondVar&) = delete;

  // Releases `mu`, waits for a signal, and takes `mu` again.
  void Wait(Mutex* mu) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

  // As Wait(), for `timeout` at most. Returns false when the time ran out. An
  // infinite timeout never runs out; one that is not positive has run out.
  bool WaitFor(Mutex* mu, absl::Duration timeout)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

  // As Wait(), until `deadline` at most. Returns false when it has passed. A
  // loop wants this one: the deadline does not move with each turn.
  bool WaitUntil(Mutex* mu, std::chrono::steady_clock::time_point deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

  // Wakes one waiter, or all of them.
  void Signal() { cv_.notify_one(); }
  void SignalAll() { cv_.notify_all(); }

 private:
  std::condition_variable cv_;
};

// The point of steady time that lies `timeout` from now; the farthest one that
// can be told for a timeout too long to add.
std::chrono::steady_clock::time_point DeadlineAfter(absl::Duration timeout);

// An event that happens once.
//
// Requires: Notify() is called at most once.
// Guarantees: what happens before Notify() is seen by whoever sees it happened.
// A waiter that has returned may destroy the notification.
// Thread-safe.
class Notification {
 public:
  Notification() = default;

  void Notify();
  bool HasBeenNotified() const;
  void WaitForNotification() const;
  // Returns false when the time ran out.
  bool WaitForNotificationWithTimeout(absl::Duration timeout) const;

 private:
  mutable Mutex mu_;
  mutable CondVar cv_;
  bool notified_ ABSL_GUARDED_BY(mu_) = false;
};

// Waits until a number of things have happened.
//
// Requires: `initial_count` is not negative; DecrementCount() is called at most
// `initial_count` times.
// Guarantees: what happens before a DecrementCount() is seen after Wait(). A
// waiter that has returned may destroy the counter.
// Thread-safe.
class BlockingCounter {
 public:
  explicit BlockingCounter(int initial_count) : count_(initial_count) {}

  // Returns whether this call reached zero.
  bool DecrementCount();
  void Wait();
  // Returns false when the time ran out.
  bool WaitWithTimeout(absl::Duration timeout);

 private:
  Mutex mu_;
  CondVar cv_;
  int count_ ABSL_GUARDED_BY(mu_);
};

}  // namespace weft

#endif  // WEFT_BASE_MUTEX_H_

// Calls to the outside, in order and with no lock held.
//
// Code that changes state under a lock adds the calls that follow from it, and
// runs them when it has let the lock go:
//
//   {
//     MutexLock lock(&mu_);
//     ...
//     outbox_.Add([link, message] { link->Send(message); });
//   }
//   outbox_.Run();
#ifndef WEFT_COORDINATOR_CORE_OUTBOX_H_
#define WEFT_COORDINATOR_CORE_OUTBOX_H_

#include <functional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"

namespace weft::coordinator {

// Guarantees: calls run one at a time, in the order they were added.
// Thread-safe.
class Outbox {
 public:
  void Add(std::function<void()> call) {
    MutexLock lock(&mu_);
    calls_.push_back(std::move(call));
  }

  // Runs what was added, and what those calls add. When another thread is at
  // it, returns at once: that thread runs it all.
  void Run() {
    {
      MutexLock lock(&mu_);
      if (running_) return;
      running_ = true;
    }
    while (true) {
      std::vector<std::function<void()>> calls;
      {
        MutexLock lock(&mu_);
        calls.swap(calls_);
        if (calls.empty()) {
          running_ = false;
          return;
        }
      }
      for (auto& call : calls) call();
    }
  }

 private:
  Mutex mu_;
  bool running_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::function<void()>> calls_ ABSL_GUARDED_BY(mu_);
};

}  // namespace weft::coordinator

#endif  // WEFT_COORDINATOR_CORE_OUTBOX_H_

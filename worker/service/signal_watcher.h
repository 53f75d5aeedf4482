// SignalWatcher: turns SIGTERM and SIGINT into one orderly end.
#ifndef WEFT_WORKER_SERVICE_SIGNAL_WATCHER_H_
#define WEFT_WORKER_SERVICE_SIGNAL_WATCHER_H_

#include <atomic>
#include <functional>
#include <thread>

#include "absl/time/time.h"

namespace weft::service {

// Waits for the signals on a thread of its own.
//
// The first signal calls `on_terminate`. When the process still lives `grace`
// later, or a second signal comes, it exits at once with code 3. Signals within
// `together` of the first are one wish, said twice: who ends a process group
// may signal a process both by itself and with its group.
class SignalWatcher {
 public:
  // Blocks both signals in the calling thread and all it makes from now on;
  // call it before the first thread is made.
  static void BlockSignals();

  // Requires: BlockSignals() was called.
  SignalWatcher(absl::Duration grace, std::function<void()> on_terminate,
                absl::Duration together = absl::Seconds(1));
  // Ends the watch; from now on a signal does nothing.
  ~SignalWatcher();

 private:
  void Watch();

  const absl::Duration grace_;
  const std::function<void()> on_terminate_;
  const absl::Duration together_;
  std::atomic<bool> is_over_{false};
  std::thread thread_;  // last
};

}  // namespace weft::service

#endif  // WEFT_WORKER_SERVICE_SIGNAL_WATCHER_H_

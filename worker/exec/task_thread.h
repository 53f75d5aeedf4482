// TaskThread: a thread for one task, which is done again and again.
#ifndef WEFT_WORKER_EXEC_TASK_THREAD_H_
#define WEFT_WORKER_EXEC_TASK_THREAD_H_

#include <cstdint>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "base/mutex.h"

namespace weft::exec {

// Used by one thread. What it did before Begin() is seen by the task, and what
// the task did by whoever has returned from Await().
class TaskThread {
 public:
  explicit TaskThread(std::function<absl::Status()> task);
  // Waits for the task.
  ~TaskThread();

  // Has the task done. Requires: Await() has returned since the last Begin().
  void Begin();
  // Waits for what was begun last and returns what the task did; OK when
  // nothing was begun.
  absl::Status Await();

 private:
  enum class State : uint8_t { kIdle, kBegun, kEnding };

  void Run();

  const std::function<absl::Status()> task_;
  Mutex mu_;
  CondVar changed_;
  State state_ ABSL_GUARDED_BY(mu_) = State::kIdle;
  absl::Status outcome_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;  // last: it uses the others
};

}  // namespace weft::exec

#endif  // WEFT_WORKER_EXEC_TASK_THREAD_H_

// Threads for calls that take long.
//
// A gRPC server has few threads that deliver messages, among them the
// heartbeats of the workers. A call that compiles a plan would keep one busy
// for seconds; enough of them at once, and every worker would seem lost.
#ifndef WEFT_COORDINATOR_SERVICE_TASK_THREADS_H_
#define WEFT_COORDINATOR_SERVICE_TASK_THREADS_H_

#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"

namespace weft::coordinator {

// Guarantees: tasks begin in the order they were added.
// Thread-safe.
class TaskThreads {
 public:
  explicit TaskThreads(int threads);
  // Runs what is left, then ends.
  ~TaskThreads();
  TaskThreads(const TaskThreads&) = delete;
  TaskThreads& operator=(const TaskThreads&) = delete;

  void Add(std::function<void()> task);

 private:
  void Run();

  Mutex mu_;
  CondVar changed_;
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mu_);
  bool is_ending_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::thread> threads_;  // last: they use the fields above
};

}  // namespace weft::coordinator

#endif  // WEFT_COORDINATOR_SERVICE_TASK_THREADS_H_

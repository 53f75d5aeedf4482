// RoutingLog: writes what routers chose while the next step runs.
#ifndef WEFT_WORKER_EXEC_ROUTING_LOG_H_
#define WEFT_WORKER_EXEC_ROUTING_LOG_H_

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "worker/exec/routing_file.h"
#include "worker/exec/tap.h"
#include "worker/exec/task_thread.h"

namespace weft::exec {

// Not thread-safe. The destructor waits for the file that is being written.
class RoutingLog {
 public:
  RoutingLog(RoutingLayout layout, int rank, int world);

  // Copies what was tapped and begins to write it to a file in `folder`; waits
  // for the file of the step before. The error of that one; INTERNAL when a
  // tensor of the layout was not tapped.
  absl::Status Write(int64_t step, const std::deque<TapWork>& taps,
                     absl::string_view folder);

  // Waits until everything is written.
  absl::Status Finish() { return thread_.Await(); }

 private:
  absl::Status WriteFile() const;

  const RoutingLayout layout_;
  const int rank_;
  const int world_;
  // Of the file that is being written.
  std::vector<int32_t> elements_;
  std::string path_;
  int64_t step_ = 0;

  TaskThread thread_;  // last: it uses the others
};

}  // namespace weft::exec

#endif  // WEFT_WORKER_EXEC_ROUTING_LOG_H_

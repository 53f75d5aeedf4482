// RoutingReplay: the experts that the routers of another job chose.
#ifndef WEFT_WORKER_EXEC_ROUTING_REPLAY_H_
#define WEFT_WORKER_EXEC_ROUTING_REPLAY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/exec/routing_file.h"
#include "worker/exec/task_thread.h"

namespace weft::exec {

struct RoutingReplayOptions {
  std::string folder;  // that replay_routing names
  RoutingLayout layout;
  int64_t steps = 0;
  int rank = 0;
  int world = 1;
};

// Reads the files of one rank, that of the next step while a step runs. Not
// thread-safe.
class RoutingReplay {
 public:
  // Looks at the file of every step. INVALID_ARGUMENT, naming the file and the
  // tensor with what is expected and what was found, unless each has the layout
  // and comes from a job of as many ranks and experts and of as long sequences;
  // NOT_FOUND when one is missing.
  static absl::StatusOr<std::unique_ptr<RoutingReplay>> Open(
      RoutingReplayOptions options);

  // What the routers chose in `step`, from 1: `out` has as many elements as the
  // layout. INVALID_ARGUMENT, naming file, tensor and token, when these are not
  // experts of the model, all different.
  absl::Status Read(int64_t step, absl::Span<int32_t> out);

 private:
  explicit RoutingReplay(RoutingReplayOptions options);

  // Of the file of step_.
  absl::Status Load();

  const RoutingReplayOptions options_;
  // What was read last, or is being read.
  int64_t step_ = 0;
  std::vector<int32_t> elements_;

  TaskThread thread_;  // last: it uses the others
};

}  // namespace weft::exec

#endif  // WEFT_WORKER_EXEC_ROUTING_REPLAY_H_

// Waits for a job to end.
#ifndef WEFT_CLIENT_FOLLOW_H_
#define WEFT_CLIENT_FOLLOW_H_

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "client/coordinator_client.h"
#include "client/exit_code.h"
#include "weft/v1/job_service.pb.h"

namespace weft::client {

struct FollowOptions {
  // When to give up: DEADLINE_EXCEEDED.
  absl::Time deadline = absl::InfiniteFuture();
  // How long the coordinator may be away at a time; jobs go on without it.
  absl::Duration patience = absl::Seconds(60);
  absl::Duration retry_interval = absl::Seconds(1);
  const Clock* clock = &RealClock();
};

// What a command that waits for a job exits with. Requires: the job has ended.
ExitCode ExitCodeOf(v1::JobState state);

// Watches a job until it has ended and returns it. `observe` sees each message
// once, also when the watch has to be taken up again. Errors of the coordinator
// end it, but for UNAVAILABLE within `patience`.
absl::StatusOr<v1::Job> Follow(
    CoordinatorClient& client, const std::string& job_id,
    const FollowOptions& options,
    const std::function<void(const v1::WatchJobResponse&)>& observe);

}  // namespace weft::client

#endif  // WEFT_CLIENT_FOLLOW_H_

#include "client/follow.h"

#include <algorithm>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/state_name.h"

namespace weft::client {
namespace {

// What is known of the job from the messages so far.
struct Seen {
  int64_t revision = 0;
  std::optional<v1::Job> ended;
  bool is_any = false;  // since the watch was last taken up
};

void Take(const v1::WatchJobResponse& update, Seen* seen) {
  seen->is_any = true;
  seen->revision = std::max(seen->revision, update.revision());
  if (update.has_snapshot() && HasEnded(update.snapshot().state())) {
    seen->ended = update.snapshot();
  }
}

absl::Status TimedOut(const std::string& job_id) {
  return absl::DeadlineExceededError(
      absl::StrCat("job ", job_id, " has not ended in time; it goes on"));
}

}  // namespace

ExitCode ExitCodeOf(v1::JobState state) {
  switch (state) {
    case v1::JOB_STATE_SUCCEEDED:
      return kExitOk;
    case v1::JOB_STATE_CANCELLED:
      return kExitJobCancelled;
    default:
      return kExitJobFailed;
  }
}

absl::StatusOr<v1::Job> Follow(
    CoordinatorClient& client, const std::string& job_id,
    const FollowOptions& options,
    const std::function<void(const v1::WatchJobResponse&)>& observe) {
  Seen seen;
  absl::Time last_contact = options.clock->Now();
  while (true) {
    const absl::Time begun = options.clock->Now();
    v1::WatchJobRequest request;
    request.set_job_id(job_id);
    request.set_after_revision(seen.revision);
    seen.is_any = false;
    const absl::Status status = client.WatchJob(
        request, options.deadline, [&](const v1::WatchJobResponse& update) {
          Take(update, &seen);
          observe(update);
        });
    if (seen.ended.has_value()) return *std::move(seen.ended);
    if (status.ok()) {
      // Ended without saying so, or the coordinator is going down.
      v1::GetJobRequest get;
      get.set_job_id(job_id);
      const auto now = client.GetJob(get);
      if (now.ok() && HasEnded(now->job().state())) return now->job();
    }
    if (absl::IsDeadlineExceeded(status)) return TimedOut(job_id);
    if (absl::IsOutOfRange(status)) {
      seen.revision = 0;  // too old; begin with a snapshot
    } else if (!status.ok() && !absl::IsUnavailable(status)) {
      return status;
    }
    // A watch that stood for long was connected, silent as it may have been.
    const bool was_connected = status.ok() || absl::IsOutOfRange(status) ||
                               seen.is_any ||
                               options.clock->Now() - begun > options.patience;
    if (was_connected) last_contact = options.clock->Now();
    if (options.clock->Now() - last_contact > options.patience) return status;
    if (options.clock->Now() + options.retry_interval > options.deadline) {
      return TimedOut(job_id);
    }
    absl::SleepFor(options.retry_interval);
  }
}

}  // namespace weft::client

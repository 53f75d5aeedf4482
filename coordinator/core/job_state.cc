#include "coordinator/core/job_state.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "weft/v1/job_service.pb.h"

namespace weft::coordinator {
namespace {

struct Move {
  v1::JobState from;
  v1::JobState to;
};

constexpr Move kMoves[] = {
    {v1::JOB_STATE_QUEUED, v1::JOB_STATE_STARTING},
    {v1::JOB_STATE_QUEUED, v1::JOB_STATE_CANCELLED},
    {v1::JOB_STATE_QUEUED, v1::JOB_STATE_FAILED},
    {v1::JOB_STATE_STARTING, v1::JOB_STATE_RUNNING},
    {v1::JOB_STATE_STARTING, v1::JOB_STATE_STOPPING},
    {v1::JOB_STATE_STARTING, v1::JOB_STATE_FAILED},
    {v1::JOB_STATE_RUNNING, v1::JOB_STATE_SUCCEEDED},
    {v1::JOB_STATE_RUNNING, v1::JOB_STATE_STOPPING},
    {v1::JOB_STATE_RUNNING, v1::JOB_STATE_FAILED},
    {v1::JOB_STATE_STOPPING, v1::JOB_STATE_CANCELLED},
    {v1::JOB_STATE_STOPPING, v1::JOB_STATE_FAILED},
};

}  // namespace

absl::Status CheckMove(v1::JobState from, v1::JobState to) {
  for (const Move& move : kMoves) {
    if (move.from == from && move.to == to) return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "a job in state ", ShortName(from), " cannot move to ", ShortName(to)));
}

bool IsFinal(v1::JobState state) {
  return state == v1::JOB_STATE_SUCCEEDED || state == v1::JOB_STATE_FAILED ||
         state == v1::JOB_STATE_CANCELLED;
}

absl::string_view ShortName(v1::JobState state) {
  const std::string& name = v1::JobState_Name(state);
  if (name.empty()) return "unknown";
  return absl::StripPrefix(absl::string_view(name), "JOB_STATE_");
}

}  // namespace weft::coordinator

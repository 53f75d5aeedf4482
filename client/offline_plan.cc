#include "client/offline_plan.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "schedule/plan.h"
#include "schedule/rules/validate.h"

namespace weft::client {

absl::StatusOr<v1::GetPlanResponse> CompilePlan(const v1::TrainingJob& job,
                                                int rank, int columns) {
  const std::vector<schedule::Violation> violations =
      schedule::Validate(job).violations;
  if (!violations.empty()) return schedule::ToStatus(violations);
  if (rank < 0 || rank >= job.parallel().world()) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", rank, " is not in [0, ", job.parallel().world(),
                     "), the job's world"));
  }
  ASSIGN_OR_RETURN(const schedule::Plan plan, schedule::Compile(job));
  v1::GetPlanResponse response;
  std::string text = absl::StrCat(schedule::DescribeRank(plan, rank),
                                  schedule::ToText(plan, plan.train));
  if (plan.eval.has_value()) {
    absl::StrAppend(&text, "\n", schedule::ToText(plan, *plan.eval));
  }
  if (plan.tapped.has_value()) {
    absl::StrAppend(&text, "\n", schedule::ToText(plan, *plan.tapped));
  }
  absl::StrAppend(&text, "\n", schedule::DescribeValues(plan));
  response.set_text(text);
  response.set_timeline(schedule::DrawTimeline(plan, plan.train, columns));
  *response.mutable_summary() = schedule::Summarize(plan);
  return response;
}

}  // namespace weft::client

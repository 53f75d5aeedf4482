#include "coordinator/core/schedule_compiler.h"

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "coordinator/core/heap.h"
#include "coordinator/core/plan_compiler.h"
#include "schedule/plan.h"
#include "weft/v1/job.pb.h"
#include "weft/v1/job_service.pb.h"

namespace weft::coordinator {
namespace {

constexpr int kTimelineColumns = 160;

absl::StatusOr<CompiledPlan> CompileForTravel(const v1::TrainingJob& job) {
  ASSIGN_OR_RETURN(const schedule::Plan plan, schedule::Compile(job));
  CompiledPlan compiled;
  compiled.summary = schedule::Summarize(plan);
  compiled.train = schedule::ToProto(plan, plan.train);
  if (plan.eval.has_value())
    compiled.eval = schedule::ToProto(plan, *plan.eval);
  if (plan.tapped.has_value())
    compiled.tapped = schedule::ToProto(plan, *plan.tapped);
  compiled.units = schedule::ToProto(plan.units);
  return compiled;
}

absl::StatusOr<PlanTexts> CompileForPeople(const v1::TrainingJob& job,
                                           int rank) {
  ASSIGN_OR_RETURN(const schedule::Plan plan, schedule::Compile(job));
  PlanTexts texts;
  texts.text = absl::StrCat(schedule::DescribeRank(plan, rank),
                            schedule::ToText(plan, plan.train), "\n",
                            schedule::DescribeValues(plan));
  texts.timeline = schedule::DrawTimeline(plan, plan.train, kTimelineColumns);
  texts.summary = schedule::Summarize(plan);
  return texts;
}

}  // namespace

absl::StatusOr<CompiledPlan> ScheduleCompiler::Compile(
    const v1::TrainingJob& job) const {
  absl::StatusOr<CompiledPlan> compiled = CompileForTravel(job);
  if (compiled.ok()) TrimHeapAfterPlan(compiled->summary.ops());
  return compiled;
}

absl::StatusOr<PlanTexts> ScheduleCompiler::Describe(const v1::TrainingJob& job,
                                                     int rank) const {
  absl::StatusOr<PlanTexts> texts = CompileForPeople(job, rank);
  if (texts.ok()) TrimHeapAfterPlan(texts->summary.ops());
  return texts;
}

}  // namespace weft::coordinator

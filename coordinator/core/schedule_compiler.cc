#include "coordinator/core/schedule_compiler.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "coordinator/core/heap.h"
#include "coordinator/core/plan_compiler.h"
#include "fsdp/unit/unit.h"
#include "model/declaration.h"
#include "schedule/plan.h"
#include "schedule/program.h"
#include "weft/v1/job.pb.h"
#include "weft/v1/job_service.pb.h"

namespace weft::coordinator {
namespace {

constexpr int kTimelineColumns = 160;

int64_t Parameters(const model::ModelDecl& model) {
  int64_t total = 0;
  for (const model::ParamDecl& param : model.params) {
    total += std::accumulate(param.shape.begin(), param.shape.end(), int64_t{1},
                             std::multiplies<int64_t>());
  }
  return total;
}

// Weights, gradients and two moments of every bucket in fp32, each whole or as
// the rank's slice.
int64_t StateBytes(const schedule::Plan& plan) {
  const fsdp::Strategy strategy = plan.train.strategy;
  int64_t elements = 0;
  for (const fsdp::Bucket& bucket : plan.units.buckets) {
    const auto held = [&](bool is_whole) {
      return is_whole ? bucket.elements : bucket.slice_elements();
    };
    elements += held(schedule::WeightsResident(strategy, bucket));
    elements += held(schedule::GradientsResident(strategy));
    elements += 2 * held(strategy == fsdp::Strategy::kNoShard);
  }
  return elements * int64_t{sizeof(float)};
}

v1::PlanSummary Summarize(const schedule::Plan& plan) {
  v1::PlanSummary summary;
  summary.set_ops(plan.train.ops.size());
  summary.set_microbatches(plan.train.microbatches);
  summary.set_classes(1);
  summary.set_arena_bytes(
      std::max(plan.train.arena_bytes,
               plan.eval.has_value() ? plan.eval->arena_bytes : int64_t{0}));
  summary.set_state_bytes(StateBytes(plan));
  summary.set_parameters(Parameters(plan.model));
  summary.set_units(plan.units.units.size());
  return summary;
}

// One line on who the rank is.
std::string DescribeRank(const schedule::Plan& plan, int rank) {
  const auto group = [&](fsdp::Axis axis) {
    return absl::StrCat(fsdp::Name(axis), "=[",
                        absl::StrJoin(plan.world.Members(axis, rank), " "),
                        "]");
  };
  return absl::StrCat("rank ", rank, " of ", plan.world.size, ": ",
                      group(fsdp::Axis::kEp), " ", group(fsdp::Axis::kEdp),
                      "\n");
}

absl::StatusOr<CompiledPlan> CompileForTravel(const v1::TrainingJob& job) {
  ASSIGN_OR_RETURN(const schedule::Plan plan, schedule::Compile(job));
  CompiledPlan compiled;
  compiled.summary = Summarize(plan);
  compiled.train = schedule::ToProto(plan, plan.train);
  if (plan.eval.has_value())
    compiled.eval = schedule::ToProto(plan, *plan.eval);
  compiled.units = schedule::ToProto(plan.units);
  return compiled;
}

absl::StatusOr<PlanTexts> CompileForPeople(const v1::TrainingJob& job,
                                           int rank) {
  ASSIGN_OR_RETURN(const schedule::Plan plan, schedule::Compile(job));
  PlanTexts texts;
  texts.text = absl::StrCat(DescribeRank(plan, rank),
                            schedule::ToText(plan, plan.train));
  texts.timeline = schedule::DrawTimeline(plan, plan.train, kTimelineColumns);
  texts.summary = Summarize(plan);
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

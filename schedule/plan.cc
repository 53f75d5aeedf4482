#include "schedule/plan.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/status_macros.h"
#include "model/decoder.h"
#include "schedule/compiler.h"
#include "schedule/taps.h"
#include "schedule/verifier.h"

namespace weft::schedule {
namespace {

fsdp::Strategy StrategyOf(const v1::TrainingJob& job) {
  switch (job.fsdp().strategy()) {
    case v1::SHARDING_STRATEGY_NO_SHARD:
      return fsdp::Strategy::kNoShard;
    case v1::SHARDING_STRATEGY_OPTIM:
      return fsdp::Strategy::kOptim;
    case v1::SHARDING_STRATEGY_OPTIM_GRADS:
      return fsdp::Strategy::kOptimGrads;
    default:
      return fsdp::Strategy::kOptimGradsParams;
  }
}

std::vector<NodePhase> OrderOf(const v1::TrainingJob& job, const Plan& plan) {
  const int microbatches = plan.shape.microbatches;
  const bool delay = job.schedule().delay_wgrad();
  if (job.schedule().order() == v1::SCHEDULE_ORDER_SEQUENTIAL) {
    return SequentialOrder(plan.model, microbatches, delay);
  }
  return Combined1F1BOrder(plan.model, microbatches, delay);
}

// Proves one program of a plan, and that it is of that plan: programs share the
// resident state, so they must agree on what is resident.
absl::Status VerifyPart(const Plan& plan, const Program& program,
                        ProgramKind kind, absl::string_view name,
                        absl::Span<const int> taps = {}) {
  if (program.kind != kind || program.strategy != plan.strategy ||
      program.microbatches != plan.shape.microbatches) {
    return absl::InternalError(absl::StrCat(
        "plan is broken: ", name, ": a program of kind ",
        static_cast<int>(program.kind), " with ", program.microbatches,
        " microbatches and ", fsdp::Name(program.strategy), ", the job has ",
        plan.shape.microbatches, " and ", fsdp::Name(plan.strategy)));
  }
  // All ranks are of one class.
  const std::vector<const Program*> by_rank(plan.world.size, &program);
  RETURN_IF_ERROR(
      Annotate(VerifyRanks(by_rank, plan.world, plan.model, plan.units), name));
  return Annotate(VerifyTaps(program, taps), name);
}

}  // namespace

Plan Declare(const v1::TrainingJob& job) {
  Plan plan;
  plan.shape = model::ShapeOf(job);
  plan.model = model::DeclareDecoder(plan.shape);
  plan.world = {static_cast<int>(plan.shape.world),
                static_cast<int>(plan.shape.ep)};
  plan.units = fsdp::AssignUnits(plan.model, plan.world);
  plan.strategy = StrategyOf(job);
  if (job.output().tap_step() > 0) {
    plan.taps = MatchTaps(
        plan.model, {job.output().taps().begin(), job.output().taps().end()});
  }
  return plan;
}

absl::StatusOr<Plan> Compile(const v1::TrainingJob& job) {
  Plan plan = Declare(job);
  CompileOptions options;
  options.microbatches = plan.shape.microbatches;
  options.strategy = plan.strategy;
  const int64_t two_units = TwoLargestUnits(plan.units);
  options.prefetch_bytes = job.fsdp().prefetch_bytes();
  options.reduce_bytes = job.fsdp().reduce_bytes();
  if (options.prefetch_bytes == 0) options.prefetch_bytes = two_units;
  if (options.reduce_bytes == 0) options.reduce_bytes = two_units;
  plan.train =
      CompileOrder(OrderOf(job, plan), plan.model, plan.units, options);
  if (!plan.taps.empty()) {
    CompileOptions tapping = options;
    tapping.taps = plan.taps;
    plan.tapped =
        CompileOrder(OrderOf(job, plan), plan.model, plan.units, tapping);
  }
  if (job.eval().batches() > 0) {
    options.kind = ProgramKind::kEval;
    plan.eval = CompileOrder(ForwardOrder(plan.model, options.microbatches),
                             plan.model, plan.units, options);
  }
  RETURN_IF_ERROR(Verify(plan));
  return plan;
}

absl::Status Verify(const Plan& plan) {
  RETURN_IF_ERROR(VerifyPart(plan, plan.train, ProgramKind::kTrain, "train"));
  if (plan.eval.has_value()) {
    RETURN_IF_ERROR(VerifyPart(plan, *plan.eval, ProgramKind::kEval, "eval"));
  }
  if (!plan.tapped.has_value()) return absl::OkStatus();
  return VerifyPart(plan, *plan.tapped, ProgramKind::kTrain, "tapped",
                    plan.taps);
}

}  // namespace weft::schedule

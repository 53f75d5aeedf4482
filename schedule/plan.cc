#include "schedule/plan.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/status_macros.h"
#include "model/decoder.h"
#include "model/frozen.h"
#include "model/parameter_groups.h"
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

int MomentsOf(const v1::OptimizerConfig& optimizer) {
  if (optimizer.kind() != v1::OPTIMIZER_KIND_SGD) return 2;
  return optimizer.momentum() > 0 ? 1 : 0;
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
      program.microbatches != plan.shape.microbatches ||
      program.buffer_slots != plan.buffer_slots) {
    return absl::InternalError(absl::StrCat(
        "plan is broken: ", name, ": a program of kind ",
        static_cast<int>(program.kind), " with ", program.microbatches,
        " microbatches, ", fsdp::Name(program.strategy), " and ",
        program.buffer_slots, " slots, the job has ", plan.shape.microbatches,
        ", ", fsdp::Name(plan.strategy), " and ", plan.buffer_slots));
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
  model::ApplyParameterGroups(job.optimizer(), plan.model);
  model::DropFrozenGradients(plan.model);
  plan.world = {static_cast<int>(plan.shape.world),
                static_cast<int>(plan.shape.ep)};
  plan.units = fsdp::AssignUnits(plan.model, plan.world);
  plan.strategy = StrategyOf(job);
  plan.moments = MomentsOf(job.optimizer());
  plan.buffer_slots = job.fsdp().buffer_slots();
  if (job.output().tap_step() > 0) {
    plan.taps = MatchTaps(
        plan.model, {job.output().taps().begin(), job.output().taps().end()});
  }
  if (job.output().routing()) plan.routing = RouterChoices(plan.model);
  return plan;
}

std::vector<int> ValuesOfTapStep(const Plan& plan) {
  std::vector<int> values;
  std::set_union(plan.taps.begin(), plan.taps.end(), plan.routing.begin(),
                 plan.routing.end(), std::back_inserter(values));
  return values;
}

absl::StatusOr<Plan> Compile(const v1::TrainingJob& job) {
  Plan plan = Declare(job);
  if (job.schedule().delay_wgrad()) {
    RETURN_IF_ERROR(WgradsCanWait(plan.model));
  }
  CompileOptions options;
  options.microbatches = plan.shape.microbatches;
  options.strategy = plan.strategy;
  const auto budget = [](int64_t bytes, int64_t otherwise) {
    return bytes > 0 ? bytes : otherwise;
  };
  options.residency.forward_bytes =
      budget(job.fsdp().prefetch_bytes(),
             TwoLargestUnits(plan.units, &fsdp::Bucket::weight_bytes));
  options.residency.backward_bytes = budget(
      job.fsdp().backward_prefetch_bytes(), options.residency.forward_bytes);
  options.residency.slots = plan.buffer_slots;
  options.reduce_bytes =
      budget(job.fsdp().reduce_bytes(),
             TwoLargestUnits(plan.units, &fsdp::Bucket::gradient_bytes));
  options.taps = plan.routing;
  options.keeps_exchanged = job.bench().exchanges() == v1::EXCHANGES_LEFT_OUT;
  plan.train =
      CompileOrder(OrderOf(job, plan), plan.model, plan.units, options);
  if (!plan.taps.empty()) {
    CompileOptions tapping = options;
    tapping.taps = ValuesOfTapStep(plan);
    plan.tapped =
        CompileOrder(OrderOf(job, plan), plan.model, plan.units, tapping);
  }
  if (job.eval().batches() > 0) {
    options.kind = ProgramKind::kEval;
    options.taps.clear();
    options.keeps_exchanged = false;
    plan.eval = CompileOrder(ForwardOrder(plan.model, options.microbatches),
                             plan.model, plan.units, options);
  }
  RETURN_IF_ERROR(Verify(plan));
  return plan;
}

absl::Status Verify(const Plan& plan) {
  RETURN_IF_ERROR(
      VerifyPart(plan, plan.train, ProgramKind::kTrain, "train", plan.routing));
  if (plan.eval.has_value()) {
    RETURN_IF_ERROR(VerifyPart(plan, *plan.eval, ProgramKind::kEval, "eval"));
  }
  if (!plan.tapped.has_value()) return absl::OkStatus();
  return VerifyPart(plan, *plan.tapped, ProgramKind::kTrain, "tapped",
                    ValuesOfTapStep(plan));
}

}  // namespace weft::schedule

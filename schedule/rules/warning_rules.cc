#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "model/pattern.h"
#include "schedule/rules/job_rules.h"
#include "weft/v1/job.pb.h"

namespace weft::schedule {
namespace {

using Finding = std::optional<std::string>;
using Job = v1::TrainingJob;

bool IsCombined(const Job& job) {
  return job.schedule().order() != v1::SCHEDULE_ORDER_SEQUENTIAL;
}

Finding WarnNothingToHide(const Job& job) {
  if (!IsCombined(job) || ExpertParallelSize(job) > 1) return {};
  return "combined 1F1B with parallel.ep=1 hides nothing: there is no "
         "all-to-all; schedule.order=sequential needs less memory";
}

Finding WarnDelayedSequential(const Job& job) {
  if (IsCombined(job) || !job.schedule().delay_wgrad()) return {};
  return "schedule.delay_wgrad with schedule.order=sequential hides "
         "all-to-alls of the backward behind weight gradients of the same "
         "microbatch only; combined_1f1b hides more";
}

Finding WarnNoPairs(const Job& job) {
  if (!IsCombined(job) || Microbatches(job) != 1) return {};
  return "combined 1F1B with one microbatch has no pairs to weave: the step "
         "runs as schedule.order=sequential would; raise batch.global_batch";
}

Finding WarnOneWorker(const Job& job) {
  if (job.parallel().world() != 1) return {};
  return "parallel.world=1: one worker holds and computes everything";
}

Finding WarnNoExperts(const Job& job) {
  if (!job.model().has_moe() || !LacksExperts(job.model())) return {};
  return "model.moe has no effect: no layer has experts";
}

Finding WarnNoLatentAttention(const Job& job) {
  const v1::ModelConfig& model = job.model();
  if (!model.has_mla() || HasBlock(model, model::BlockKind::kMla)) return {};
  return "model.mla has no effect: no layer has latent attention, a `+` in "
         "model.pattern";
}

Finding WarnNoMixers(const Job& job) {
  const v1::ModelConfig& model = job.model();
  if (!model.has_mamba() || HasBlock(model, model::BlockKind::kMamba)) {
    return {};
  }
  return "model.mamba has no effect: no layer has a mixer, an `M` in "
         "model.pattern";
}

Finding WarnNoAttention(const Job& job) {
  const v1::ModelConfig& model = job.model();
  if (!model.has_attention() || HasBlock(model, model::BlockKind::kMla) ||
      HasBlock(model, model::BlockKind::kAttention)) {
    return {};
  }
  return "model.attention has no effect: no layer has attention";
}

Finding WarnNoDepths(const Job& job) {
  if (!job.model().has_mtp() || model::PatternOf(job.model()).mtp_depth > 0) {
    return {};
  }
  return "model.mtp has no effect: it has no depth, and model.pattern no part "
         "behind a slash";
}

Finding WarnRowsBoundOfPadded(const Job& job) {
  const v1::MoeConfig& moe = job.model().moe();
  if (moe.max_rows_factor() == 0 || !moe.capacity().pad()) return {};
  return "model.moe.max_rows_factor has no effect: with "
         "model.moe.capacity.pad every expert gets as many rows";
}

Finding WarnDenseLayersWithoutMoe(const Job& job) {
  if (job.model().has_moe() || job.model().dense_layers_size() == 0) return {};
  return "model.dense_layers has no effect: without model.moe every layer is "
         "dense";
}

Finding WarnEvalNever(const Job& job) {
  if (job.eval().every_steps() == 0 || job.eval().batches() != 0) return {};
  return absl::StrCat("eval.every_steps=", job.eval().every_steps(),
                      " has no effect: eval.batches=0 means no validation");
}

Finding WarnMinLearningRate(const Job& job) {
  if (job.optimizer().min_learning_rate() == 0 ||
      job.optimizer().decay() == v1::DECAY_COSINE ||
      job.optimizer().decay() == v1::DECAY_WSD) {
    return {};
  }
  return "optimizer.min_learning_rate has no effect: the learning rate is "
         "constant after warmup; set optimizer.decay=cosine";
}

Finding WarnNoMoments(const Job& job) {
  const v1::OptimizerConfig& optimizer = job.optimizer();
  const bool set = optimizer.has_beta1() || optimizer.has_beta2() ||
                   optimizer.epsilon() != 0;
  if (optimizer.kind() != v1::OPTIMIZER_KIND_SGD || !set) return {};
  return "optimizer.beta1, beta2 and epsilon have no effect with "
         "optimizer.kind=sgd; set optimizer.momentum";
}

constexpr WarningRule kWarningRules[] = {
    {"schedule.order", WarnNothingToHide},
    {"schedule.delay_wgrad", WarnDelayedSequential},
    {"batch.global_batch", WarnNoPairs},
    {"parallel.world", WarnOneWorker},
    {"model.moe", WarnNoExperts},
    {"model.mla", WarnNoLatentAttention},
    {"model.mamba", WarnNoMixers},
    {"model.attention", WarnNoAttention},
    {"model.mtp", WarnNoDepths},
    {"model.moe.max_rows_factor", WarnRowsBoundOfPadded},
    {"model.dense_layers", WarnDenseLayersWithoutMoe},
    {"eval.every_steps", WarnEvalNever},
    {"optimizer.min_learning_rate", WarnMinLearningRate},
    {"optimizer.kind", WarnNoMoments},
};

}  // namespace

absl::Span<const WarningRule> WarningRules() { return kWarningRules; }

}  // namespace weft::schedule

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/describe.h"
#include "schedule/rules/job_rules.h"
#include "weft/v1/job.pb.h"

namespace weft::schedule {
namespace {

using Finding = std::optional<std::string>;
using Job = v1::TrainingJob;

Finding CheckTopK(const Job& job) {
  const v1::MoeConfig& moe = job.model().moe();
  if (moe.top_k() <= moe.num_experts()) return {};
  return absl::StrCat(
      "model.moe.top_k=", moe.top_k(),
      " is larger than model.moe.num_experts=", moe.num_experts());
}

Finding CheckRouterLearns(const Job& job) {
  const v1::MoeConfig& moe = job.model().moe();
  if (moe.top_k() != 1 ||
      moe.top_k_normalization() == v1::TOP_K_NORMALIZATION_RAW) {
    return {};
  }
  return "model.moe.top_k=1 with renormalised probabilities makes every "
         "probability 1, so the router would get no gradient";
}

Finding CheckRouterLossHasRouters(const Job& job) {
  if (!LacksExperts(job.model())) return {};
  const v1::RouterLossConfig& loss = job.model().moe().router_loss();
  if (loss.aux() == 0 && loss.sequence_aux() == 0 && loss.global_aux() == 0 &&
      loss.z() == 0) {
    return {};
  }
  return "model.moe.router_loss is set but no layer has experts";
}

// Experts of a group; 0 when groups are not alike.
int GroupSize(const v1::MoeConfig& moe) {
  const int groups = moe.expert_groups().groups();
  return moe.num_experts() % groups == 0 ? moe.num_experts() / groups : 0;
}

Finding CheckGroups(const Job& job) {
  const v1::MoeConfig& moe = job.model().moe();
  if (GroupSize(moe) > 0) return {};
  return absl::StrCat(
      "model.moe.expert_groups.groups=", moe.expert_groups().groups(),
      " does not divide model.moe.num_experts=", moe.num_experts(),
      "; choose from ", Divisors(moe.num_experts(), moe.num_experts()));
}

Finding CheckKeptGroups(const Job& job) {
  const v1::MoeConfig& moe = job.model().moe();
  const v1::ExpertGroupsConfig& groups = moe.expert_groups();
  if (groups.kept() > groups.groups()) {
    return absl::StrCat(
        "model.moe.expert_groups.kept=", groups.kept(),
        " is larger than model.moe.expert_groups.groups=", groups.groups());
  }
  const int size = GroupSize(moe);
  if (size == 0 || groups.kept() * size >= moe.top_k()) return {};
  return absl::StrCat("model.moe.expert_groups.kept=", groups.kept(),
                      " groups of ", size, " experts have fewer than ",
                      "model.moe.top_k=", moe.top_k());
}

// The default keeps it wherever kept groups have enough experts.
Finding CheckGroupScores(const Job& job) {
  const v1::MoeConfig& moe = job.model().moe();
  const int scores = moe.expert_groups().scores();
  const int size = GroupSize(moe);
  if (size == 0 || scores <= size) return {};
  return absl::StrCat("model.moe.expert_groups.scores=", scores,
                      " is larger than the ", size, " experts of a group");
}

Finding CheckBiasHasSigmoid(const Job& job) {
  const v1::MoeConfig& moe = job.model().moe();
  if (moe.score_function() == v1::SCORE_FUNCTION_SIGMOID) return {};
  return "model.moe.expert_bias is set but model.moe.score_function is "
         "softmax: "
         "a bias is added to sigmoids";
}

// Field, other fields read, what is allowed, check.
constexpr RelationRule kRules[] = {
    {"model.moe.top_k", "model.moe.num_experts", "1 to num_experts", CheckTopK},
    {"model.moe.top_k_normalization", "model.moe.top_k",
     "raw, or top_k of 2 and more", CheckRouterLearns},
    {"model.moe.router_loss", "model.dense_layers,model.num_layers",
     "left out without layers with experts", CheckRouterLossHasRouters},
    {"model.moe.expert_groups.groups",
     "model.moe.num_experts,model.moe.expert_groups.kept",
     "a divisor of num_experts", CheckGroups},
    {"model.moe.expert_groups.kept",
     "model.moe.num_experts,model.moe.top_k,model.moe.expert_groups.groups",
     "1 to groups, with top_k experts at least", CheckKeptGroups},
    {"model.moe.expert_groups.scores",
     "model.moe.num_experts,model.moe.expert_groups.groups",
     "1 to num_experts / groups", CheckGroupScores},
    {"model.moe.expert_bias", "model.moe.expert_bias.update_rate",
     "with score_function sigmoid only", CheckBiasHasSigmoid},
};

}  // namespace

absl::Span<const RelationRule> RouterRules() { return kRules; }

}  // namespace weft::schedule

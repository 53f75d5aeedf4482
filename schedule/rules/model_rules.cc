#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/describe.h"
#include "schedule/rules/job_rules.h"
#include "weft/v1/job.pb.h"

namespace weft::schedule {
namespace {

using Finding = std::optional<std::string>;
using Job = v1::TrainingJob;

Finding CheckKvHeads(const Job& job) {
  const int heads = job.model().attention().num_heads();
  const int kv_heads = job.model().attention().num_kv_heads();
  if (kv_heads == 0 || heads % kv_heads == 0) return {};
  return absl::StrCat("model.attention.num_kv_heads=", kv_heads,
                      " does not divide model.attention.num_heads=", heads,
                      "; choose from ", Divisors(heads, heads));
}

Finding CheckHeadDimFollows(const Job& job) {
  const int hidden = job.model().hidden_size();
  const int heads = job.model().attention().num_heads();
  if (job.model().attention().head_dim() != 0 || hidden % heads == 0) return {};
  return absl::StrCat(
      "model.attention.head_dim is not set and model.", "hidden_size=", hidden,
      " is not divisible by model.attention.num_heads=", heads,
      "; set head_dim or choose num_heads from ", Divisors(hidden, 1024));
}

Finding CheckHeadDimEven(const Job& job) {
  const int hidden = job.model().hidden_size();
  const int heads = job.model().attention().num_heads();
  const int set = job.model().attention().head_dim();
  if (set != 0) {
    if (set % 2 == 0) return {};
    return absl::StrCat("model.attention.head_dim=", set, " is odd");
  }
  if (hidden % heads != 0) return {};
  const int64_t dim = hidden / heads;
  if (dim % 2 == 0 && dim >= 2 && dim <= 1024) return {};
  return absl::StrCat("model.attention.head_dim is not set, so it is ",
                      "model.hidden_size / num_heads = ", hidden, " / ", heads,
                      " = ", dim);
}

Finding CheckFfnGiven(const Job& job) {
  const v1::ModelConfig& model = job.model();
  if (model.ffn_hidden_size() != 0) return {};
  if (!model.has_moe()) {
    return "model.ffn_hidden_size is not set and, without model.moe, every "
           "layer is dense";
  }
  for (int layer : model.dense_layers()) {
    if (layer < 0 || layer >= model.num_layers()) continue;
    return absl::StrCat(
        "model.ffn_hidden_size is not set and model.dense_layers makes layer ",
        layer, " dense");
  }
  return {};
}

Finding CheckDenseLayers(const Job& job) {
  int64_t before = -1;
  for (int i = 0; i < job.model().dense_layers_size(); ++i) {
    const int layer = job.model().dense_layers(i);
    if (layer < 0 || layer >= job.model().num_layers()) {
      return absl::StrCat(
          "model.dense_layers[", i, "]=", layer,
          " is not a layer; model.num_layers=", job.model().num_layers());
    }
    if (layer <= before) {
      return absl::StrCat("model.dense_layers[", i, "]=", layer,
                          " does not ascend: it follows ", before);
    }
    before = layer;
  }
  return {};
}

Finding CheckSharedGate(const Job& job) {
  const v1::MoeConfig& moe = job.model().moe();
  if (!moe.shared_expert_gate() || moe.shared_expert_hidden_size() > 0) {
    return {};
  }
  return "model.moe.shared_expert_gate=true but "
         "model.moe.shared_expert_hidden_size=0: there is nothing to gate";
}

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
  if (MoeLayers(job.model()) > 0) return {};
  const v1::RouterLossConfig& loss = job.model().moe().router_loss();
  if (loss.aux() == 0 && loss.sequence_aux() == 0 && loss.global_aux() == 0 &&
      loss.z() == 0) {
    return {};
  }
  return "model.moe.router_loss is set but model.dense_layers leaves no layer "
         "with experts";
}

// Field, other fields read, what is allowed, check.
constexpr RelationRule kRules[] = {
    {"model.attention.num_kv_heads", "model.attention.num_heads",
     "a divisor of num_heads", CheckKvHeads},
    {"model.attention.head_dim", "model.hidden_size,model.attention.num_heads",
     "head_dim, or a hidden_size that num_heads divides", CheckHeadDimFollows},
    {"model.attention.head_dim", "model.hidden_size,model.attention.num_heads",
     "even, 2 to 1024", CheckHeadDimEven},
    {"model.ffn_hidden_size", "model.dense_layers,model.num_layers",
     "1 to 1048576 when some layer is dense", CheckFfnGiven},
    {"model.dense_layers", "model.num_layers",
     "ascending layer indices in [0, num_layers)", CheckDenseLayers},
    {"model.moe.top_k", "model.moe.num_experts", "1 to num_experts", CheckTopK},
    {"model.moe.shared_expert_gate", "model.moe.shared_expert_hidden_size",
     "false without a shared expert", CheckSharedGate},
    {"model.moe.top_k_normalization", "model.moe.top_k",
     "raw, or top_k of 2 and more", CheckRouterLearns},
    {"model.moe.router_loss", "model.dense_layers,model.num_layers",
     "left out without layers with experts", CheckRouterLossHasRouters},
};

}  // namespace

absl::Span<const RelationRule> ModelRules() { return kRules; }

}  // namespace weft::schedule

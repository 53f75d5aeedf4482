#include <cmath>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/describe.h"
#include "model/pattern.h"
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

// Attention that is not latent.
bool HasAttention(const v1::ModelConfig& model) {
  return model::HasBlock(model, model::BlockKind::kAttention);
}

Finding CheckHeadDimFollows(const Job& job) {
  if (!HasAttention(job.model())) return {};
  const int hidden = job.model().hidden_size();
  const int heads = job.model().attention().num_heads();
  if (job.model().attention().head_dim() != 0 || hidden % heads == 0) return {};
  return absl::StrCat(
      "model.attention.head_dim is not set and model.", "hidden_size=", hidden,
      " is not divisible by model.attention.num_heads=", heads,
      "; set head_dim or choose num_heads from ", Divisors(hidden, 1024));
}

Finding CheckHeadDimEven(const Job& job) {
  if (!HasAttention(job.model())) return {};
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

Finding CheckNumLayers(const Job& job) {
  const v1::ModelConfig& model = job.model();
  if (model.pattern().empty()) {
    if (model.num_layers() != 0) return {};
    return "model.num_layers is not set and neither is model.pattern";
  }
  if (model.num_layers() == 0) return {};
  int symbols = 0;
  for (const auto& layer : model::PatternOf(model).layers) {
    symbols += layer.size();
  }
  if (symbols == 0 || symbols == model.num_layers()) return {};
  return absl::StrCat("model.num_layers=", model.num_layers(),
                      " but model.pattern has ", symbols, " symbols");
}

Finding CheckPattern(const Job& job) {
  const std::string& text = job.model().pattern();
  if (text.empty()) return {};
  if (text.size() > model::kMaxPatternBytes) {
    return absl::StrCat("model.pattern has ", text.size(), " bytes");
  }
  const auto pattern = model::ParsePattern(text);
  if (!pattern.ok()) {
    return absl::StrCat("model.pattern=\"", Shortened(text, 64),
                        "\": ", pattern.status().message());
  }
  if (pattern->layers.size() > model::kMaxLayers) {
    return absl::StrCat("model.pattern has ", pattern->layers.size(),
                        " layers");
  }
  if (pattern->mtp_depth > model::kMaxMtpDepth) {
    return absl::StrCat("model.pattern has ", pattern->mtp_depth,
                        " parts behind a slash");
  }
  return {};
}

Finding CheckDenseLayersWithPattern(const Job& job) {
  if (job.model().pattern().empty() || job.model().dense_layers().empty()) {
    return {};
  }
  return "model.dense_layers is set and so is model.pattern, which says which "
         "layers are dense";
}

Finding CheckRotaryFraction(const Job& job) {
  const v1::AttentionConfig& attention = job.model().attention();
  const double fraction = attention.rotary_fraction();
  if (fraction == 0) return {};
  if (attention.no_rope()) {
    return absl::StrCat(
        "model.attention.rotary_fraction=", fraction,
        " but model.attention.no_rope=true: nothing is rotated");
  }
  const double rotated = fraction * HeadDim(job);
  const double pairs = std::round(rotated / 2);
  if (pairs > 0 && std::abs(rotated - 2 * pairs) < 1e-6 * rotated) return {};
  return absl::StrCat("model.attention.rotary_fraction=", fraction, " rotates ",
                      rotated, " of the ", HeadDim(job), " elements of a head");
}

// What latent attention does not have, when there is it and no other.
Finding CheckAttentionFields(const Job& job) {
  const v1::AttentionConfig& attention = job.model().attention();
  if (HasAttention(job.model())) return {};
  if (!model::HasBlock(job.model(), model::BlockKind::kMla)) return {};
  const int kv_heads = attention.num_kv_heads();
  const struct {
    bool is_set;
    absl::string_view name;
  } fields[] = {
      {kv_heads != 0 && kv_heads != attention.num_heads(), "num_kv_heads"},
      {attention.head_dim() != 0, "head_dim"},
      {attention.qkv_bias(), "qkv_bias"},
      {attention.output_bias(), "output_bias"},
      {attention.qk_norm(), "qk_norm"},
      {attention.no_rope(), "no_rope"},
      {attention.rotary_fraction() != 0, "rotary_fraction"},
  };
  for (const auto& field : fields) {
    if (!field.is_set) continue;
    return absl::StrCat("model.attention.", field.name,
                        " is set, but all attention is latent, which knows "
                        "nothing of it");
  }
  return {};
}

Finding CheckMlaRopeEven(const Job& job) {
  const int dim = job.model().mla().qk_rope_head_dim();
  if (dim % 2 == 0) return {};
  return absl::StrCat("model.mla.qk_rope_head_dim=", dim, " is odd");
}

Finding CheckYarnBetas(const Job& job) {
  const v1::YarnConfig& yarn = job.model().mla().yarn();
  const double fast = yarn.beta_fast() != 0 ? yarn.beta_fast() : 32;
  const double slow = yarn.beta_slow() != 0 ? yarn.beta_slow() : 1;
  if (slow <= fast) return {};
  return absl::StrCat("model.mla.yarn.beta_slow=", slow,
                      " is above model.mla.yarn.beta_fast=", fast);
}

Finding CheckFfnGiven(const Job& job) {
  const v1::ModelConfig& model = job.model();
  if (model.ffn_hidden_size() != 0) return {};
  if (absl::StrContains(model.pattern(), '-')) {
    return "model.ffn_hidden_size is not set and model.pattern has a `-`";
  }
  if (model.pattern().empty() && !model.has_moe()) {
    return "model.ffn_hidden_size is not set and, without model.moe, every "
           "layer is dense";
  }
  if (Has(model::PatternOf(model).mtp, model::BlockKind::kMlp)) {
    return "model.ffn_hidden_size is not set and layers of depths are dense: "
           "model.mtp.dense=true, or there is no model.moe";
  }
  if (!model.pattern().empty()) return {};
  for (int layer : model.dense_layers()) {
    if (layer < 0 || layer >= model.num_layers()) continue;
    return absl::StrCat(
        "model.ffn_hidden_size is not set and model.dense_layers makes layer ",
        layer, " dense");
  }
  return {};
}

// Parts of a pattern behind a slash; 0 if it cannot be understood.
int PartsBehindSlash(const v1::ModelConfig& model) {
  v1::ModelConfig pattern;
  pattern.set_pattern(model.pattern());
  return model::PatternOf(pattern).mtp_depth;
}

Finding CheckMtpDepth(const Job& job) {
  const int depth = job.model().mtp().depth();
  const int parts = PartsBehindSlash(job.model());
  if (depth == 0 || parts == 0 || depth == parts) return {};
  return absl::StrCat("model.mtp.depth=", depth, " but model.pattern has ",
                      parts, parts == 1 ? " part" : " parts",
                      " behind a slash");
}

Finding CheckMtpDense(const Job& job) {
  if (!job.model().mtp().dense() || PartsBehindSlash(job.model()) == 0) {
    return {};
  }
  return "model.mtp.dense=true but the parts of model.pattern behind a slash "
         "say what layers of depths are";
}

Finding CheckDepthsHaveLabels(const Job& job) {
  const int depth = model::PatternOf(job.model()).mtp_depth;
  const int sequence = job.data().sequence_length();
  if (depth == 0 || depth < sequence) return {};
  return absl::StrCat("data.sequence_length=", sequence,
                      " is not above a depth of multi-token prediction of ",
                      depth, ", which would look past the end of every one");
}

Finding CheckDenseLayers(const Job& job) {
  if (!job.model().pattern().empty()) return {};
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

Finding CheckMambaGroups(const Job& job) {
  const int heads = job.model().mamba().num_heads();
  const int groups = job.model().mamba().num_groups();
  if (heads % groups == 0) return {};
  return absl::StrCat("model.mamba.num_groups=", groups,
                      " does not divide model.mamba.num_heads=", heads,
                      "; choose from ", Divisors(heads, heads));
}

Finding CheckMambaTimeSteps(const Job& job) {
  const v1::MambaConfig& mamba = job.model().mamba();
  if (mamba.time_step_max() == 0 ||
      mamba.time_step_min() <= mamba.time_step_max()) {
    return {};
  }
  return absl::StrCat(
      "model.mamba.time_step_min=", mamba.time_step_min(),
      " is above model.mamba.time_step_max=", mamba.time_step_max());
}

Finding CheckPaddingToken(const Job& job) {
  const v1::ModelConfig& model = job.model();
  if (model.padding_token() < model.vocab_size()) return {};
  return absl::StrCat("model.padding_token=", model.padding_token(),
                      " is not below model.vocab_size=", model.vocab_size());
}

Finding CheckSharedGate(const Job& job) {
  const v1::MoeConfig& moe = job.model().moe();
  if (!moe.shared_expert_gate() || moe.shared_expert_hidden_size() > 0) {
    return {};
  }
  return "model.moe.shared_expert_gate=true but "
         "model.moe.shared_expert_hidden_size=0: there is nothing to gate";
}

Finding CheckSharedOverlap(const Job& job) {
  const v1::MoeConfig& moe = job.model().moe();
  if (!moe.overlap_shared_expert() || moe.shared_expert_hidden_size() > 0) {
    return {};
  }
  return "model.moe.overlap_shared_expert=true but "
         "model.moe.shared_expert_hidden_size=0: there is nothing to overlap";
}

// Field, other fields read, what is allowed, check.
constexpr RelationRule kRules[] = {
    {"model.num_layers", "model.pattern",
     "set without model.pattern; with it 0, or the number of its symbols",
     CheckNumLayers},
    {"model.pattern", "",
     "a pattern of up to 4096 bytes, 1024 layers and 16 depths", CheckPattern},
    {"model.dense_layers", "model.pattern", "left out with model.pattern",
     CheckDenseLayersWithPattern},
    {"model.attention.num_kv_heads", "model.attention.num_heads",
     "a divisor of num_heads", CheckKvHeads},
    {"model.attention.head_dim", "model.hidden_size,model.attention.num_heads",
     "head_dim, or a hidden_size that num_heads divides", CheckHeadDimFollows},
    {"model.attention.head_dim", "model.hidden_size,model.attention.num_heads",
     "even, 2 to 1024", CheckHeadDimEven},
    {"model.attention.rotary_fraction",
     "model.attention.head_dim,model.hidden_size,model.attention.num_heads",
     "an even number of a head's elements; left out with no_rope",
     CheckRotaryFraction},
    {"model.attention", "model.mla,model.attention.num_heads",
     "num_heads, rope_theta and softmax_scale alone when all attention is "
     "latent",
     CheckAttentionFields},
    {"model.mla.qk_rope_head_dim", "", "even", CheckMlaRopeEven},
    {"model.mla.yarn.beta_slow", "model.mla.yarn.beta_fast",
     "at most beta_fast", CheckYarnBetas},
    {"model.ffn_hidden_size",
     "model.dense_layers,model.num_layers,model.pattern",
     "1 to 1048576 when some layer is dense", CheckFfnGiven},
    {"model.mtp.depth", "model.pattern",
     "0, or the parts of model.pattern behind a slash where it has some",
     CheckMtpDepth},
    {"model.mtp.dense", "model.pattern",
     "left out with a slash in model.pattern", CheckMtpDense},
    {"data.sequence_length", "model",
     "above the depth of multi-token prediction", CheckDepthsHaveLabels},
    {"model.dense_layers", "model.num_layers",
     "ascending layer indices in [0, num_layers)", CheckDenseLayers},
    {"model.mamba.num_groups", "model.mamba.num_heads",
     "a divisor of num_heads", CheckMambaGroups},
    {"model.mamba.time_step_min", "model.mamba.time_step_max",
     "at most time_step_max", CheckMambaTimeSteps},
    {"model.padding_token", "model.vocab_size", "0 to vocab_size - 1",
     CheckPaddingToken},
    {"model.moe.shared_expert_gate", "model.moe.shared_expert_hidden_size",
     "false without a shared expert", CheckSharedGate},
    {"model.moe.overlap_shared_expert", "model.moe.shared_expert_hidden_size",
     "false without a shared expert", CheckSharedOverlap},
};

}  // namespace

absl::Span<const RelationRule> ModelRules() { return kRules; }

}  // namespace weft::schedule

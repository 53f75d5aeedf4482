#include "checkpoint/format/megatron_config.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "checkpoint/format/json_fields.h"
#include "checkpoint/format/megatron_layers.h"
#include "nlohmann/json.hpp"

namespace weft::checkpoint {
namespace {

using nlohmann::json;

constexpr int64_t kMaxInt = INT32_MAX;

// Fields that cannot change what is trained where nothing has read them, and
// why.
struct WithoutEffect {
  const char* name;
  const char* why;
};

constexpr WithoutEffect kWithoutEffect[] = {
    {"beta_fast", "of yarn, which is off"},
    {"beta_slow", "of yarn, which is off"},
    {"kv_channels", "of attention, which no layer has"},
    {"kv_lora_rank", "of MLA, which is off"},
    {"mamba_conv_width", "of mixers, which no layer has"},
    {"mamba_head_dim", "of mixers, which no layer has"},
    {"mamba_norm_epsilon", "of mixers, which no layer has"},
    {"mamba_num_groups", "of mixers, which no layer has"},
    {"mamba_num_heads", "of mixers, which no layer has"},
    {"mamba_state_dim", "of mixers, which no layer has"},
    {"max_sequence_length", "a length; rotary positions have none"},
    {"mscale", "of yarn, which is off"},
    {"mscale_all_dim", "of yarn, which is off"},
    {"num_query_groups", "of attention, which no layer has"},
    {"original_max_position_embeddings", "of yarn, which is off"},
    {"q_lora_rank", "of MLA, which is off"},
    {"qk_head_dim", "of MLA, which is off"},
    {"qk_layernorm", "of attention, which no layer has"},
    {"qk_pos_emb_head_dim", "of MLA, which is off"},
    {"rope_type", "of MLA, which is off"},
    {"rotary_percent", "of attention, which no layer rotates"},
    {"rotary_scaling_factor", "of yarn, which is off"},
    {"v_head_dim", "of MLA, which is off"},
};

// One call reads one text.
class Parser {
 public:
  explicit Parser(const json& object) : fields_(object) {}

  absl::StatusOr<MegatronConfig> Parse();

 private:
  // A field that is absent may be off by it; any other value is refused.
  void MustBe(const char* name, const json& value);
  void CheckFeatures();
  void ReadSizes();
  void ReadActivation();
  void ReadMoe();
  void ReadFeedForwards();
  void ReadPatternsFeedForwards(int64_t dense_width);
  void ReadRouter(v1::MoeConfig& moe);
  void ReadGroups(v1::MoeConfig& moe);
  void ReadExpertBias(v1::MoeConfig& moe);
  void ReadCapacity(v1::MoeConfig& moe);
  void ReadSharedExpert(v1::MoeConfig& moe);
  void ReadDenseLayers();
  void ReadRouterLosses(v1::RouterLossConfig& losses);
  void ReadBalancing(v1::RouterLossConfig& losses);
  void SetBalancing(const std::string& type, double coefficient,
                    v1::RouterLossConfig& losses);

  FieldReader fields_;
  MegatronConfig config_;
};

void Parser::MustBe(const char* name, const json& value) {
  const json* field = fields_.Take(name);
  if (field != nullptr && *field != value) {
    fields_.Refuse(name, absl::StrCat("must be ", value.dump()));
  }
}

void Parser::CheckFeatures() {
  MustBe("normalization", "RMSNorm");
  MustBe("add_bias_linear", false);
}

void Parser::ReadSizes() {
  v1::ModelConfig& model = config_.model;
  fields_.Require({"vocab_size", "hidden_size", "num_layers",
                   "num_attention_heads", "layernorm_epsilon"});
  model.set_vocab_size(fields_.Integer({"vocab_size", 2, 2, 1048576}));
  model.set_hidden_size(fields_.Integer({"hidden_size", 1, 1, 65536}));
  ReadMegatronPattern(fields_, model);
  model.set_tie_embeddings(
      fields_.Boolean("share_embeddings_and_output_weights", false));
  const double epsilon = fields_.Number("layernorm_epsilon", 1e-5);
  if (!(epsilon >= 1e-30 && epsilon < 1)) {
    fields_.Refuse("layernorm_epsilon", "must be 1e-30 to below 1");
  }
  model.set_norm_epsilon(epsilon);
}

void Parser::ReadActivation() {
  const bool is_gated = fields_.Boolean("gated_linear_unit", true);
  const json* name = fields_.Take("activation");
  if (name == nullptr || *name == "swiglu") {
    if (!is_gated) {
      fields_.Refuse("gated_linear_unit", "must be true with \"swiglu\"");
    }
    config_.model.set_mlp_activation(v1::MLP_ACTIVATION_SWIGLU);
  } else if (*name == "squared_relu" || *name == "gelu") {
    if (is_gated) {
      fields_.Refuse("gated_linear_unit",
                     absl::StrCat("must be false with ", name->dump()));
    }
    config_.model.set_mlp_activation(*name == "gelu"
                                         ? v1::MLP_ACTIVATION_GELU
                                         : v1::MLP_ACTIVATION_SQUARED_RELU);
  } else {
    fields_.Refuse("activation",
                   "must be \"swiglu\", \"squared_relu\" or \"gelu\"");
  }
}

void Parser::ReadSharedExpert(v1::MoeConfig& moe) {
  constexpr char kWidth[] = "moe_shared_expert_intermediate_size";
  moe.set_shared_expert_hidden_size(
      fields_.Integer({kWidth, 0, 1, 1048576, true}));
  const bool is_gated = fields_.Boolean("moe_shared_expert_gate", false);
  if (is_gated && moe.shared_expert_hidden_size() == 0 &&
      fields_.AreFine({kWidth})) {
    fields_.Refuse("moe_shared_expert_gate",
                   absl::StrCat("must be false without ", kWidth));
  }
  moe.set_shared_expert_gate(is_gated);
}

// Layer i has experts where moe_layer_freq, a number, divides i, or is a list
// with 1 at place i.
void Parser::ReadDenseLayers() {
  constexpr char kName[] = "moe_layer_freq";
  v1::ModelConfig& model = config_.model;
  const json* given = fields_.Take(kName);
  std::vector<int> has_experts(model.num_layers(), 1);
  if (given != nullptr && given->is_array()) {
    bool is_fine = given->size() == has_experts.size();
    for (size_t i = 0; is_fine && i < given->size(); ++i) {
      is_fine = (*given)[i] == 0 || (*given)[i] == 1;
      if (is_fine) has_experts[i] = (*given)[i].get<int>();
    }
    if (!is_fine) {
      fields_.Refuse(kName, absl::StrCat("must be a list of 0 and 1 for the ",
                                         model.num_layers(), " layers"));
    }
  } else {
    const int64_t every = fields_.Integer({kName, 1, 1, kMaxInt});
    for (int i = 0; i < model.num_layers(); ++i) {
      has_experts[i] = i % every == 0;
    }
  }
  for (int i = 0; i < model.num_layers(); ++i) {
    if (has_experts[i] == 0) model.add_dense_layers(i);
  }
}

void Parser::SetBalancing(const std::string& type, double coefficient,
                          v1::RouterLossConfig& losses) {
  if (type == "aux_loss") {
    losses.set_aux(losses.aux() + coefficient);
  } else if (type == "seq_aux_loss") {
    losses.set_sequence_aux(losses.sequence_aux() + coefficient);
  } else if (type == "global_aux_loss") {
    losses.set_global_aux(losses.global_aux() + coefficient);
  } else if (type != "none") {
    fields_.Refuse("moe_router_load_balancing_type",
                   "must be of \"none\", \"aux_loss\", \"seq_aux_loss\" and "
                   "\"global_aux_loss\"");
  }
}

// One type with one coefficient, or as many of each in two lists.
void Parser::ReadBalancing(v1::RouterLossConfig& losses) {
  constexpr char kType[] = "moe_router_load_balancing_type";
  constexpr char kCoefficient[] = "moe_aux_loss_coeff";
  const json* type = fields_.Take(kType);
  if (type != nullptr && type->is_array()) {
    const json* coefficients = fields_.Take(kCoefficient);
    if (coefficients == nullptr || !coefficients->is_array() ||
        coefficients->size() != type->size()) {
      fields_.Refuse(kCoefficient, absl::StrCat("must be a list like ", kType));
      return;
    }
    for (size_t i = 0; i < type->size(); ++i) {
      if (!(*type)[i].is_string() || !(*coefficients)[i].is_number()) {
        fields_.Refuse((*type)[i].is_string() ? kCoefficient : kType,
                       "must be names and as many numbers");
        return;
      }
      SetBalancing((*type)[i].get<std::string>(),
                   (*coefficients)[i].get<double>(), losses);
    }
    return;
  }
  const double coefficient = fields_.Number(kCoefficient, 0);
  if (type == nullptr) return;
  SetBalancing(type->is_string() ? type->get<std::string>() : "", coefficient,
               losses);
}

void Parser::ReadRouterLosses(v1::RouterLossConfig& losses) {
  ReadBalancing(losses);
  losses.set_z(fields_.Number("moe_z_loss_coeff", 0, /*nullable=*/true));
}

// With a sigmoid, several chosen scores are always divided by their sum, and
// one never.
void Parser::ReadRouter(v1::MoeConfig& moe) {
  constexpr char kScore[] = "moe_router_score_function";
  constexpr char kScaling[] = "moe_router_topk_scaling_factor";
  bool is_raw = fields_.Boolean("moe_router_pre_softmax", false);
  const json* score = fields_.Take(kScore);
  if (score != nullptr && *score == "sigmoid") {
    moe.set_score_function(v1::SCORE_FUNCTION_SIGMOID);
    is_raw = moe.top_k() == 1;
  } else if (score != nullptr && *score != "softmax") {
    fields_.Refuse(kScore, "must be \"softmax\" or \"sigmoid\"");
  }
  moe.set_top_k_normalization(is_raw ? v1::TOP_K_NORMALIZATION_RAW
                                     : v1::TOP_K_NORMALIZATION_RENORMALIZED);
  const double scaling = fields_.Number(kScaling, 0, /*nullable=*/true);
  if (fields_.IsGiven(kScaling) && !fields_.IsNull(kScaling) &&
      !(scaling >= 1e-30 && scaling <= 1e30)) {
    fields_.Refuse(kScaling, "must be null or 1e-30 to 1e30");
  }
  moe.set_scaling_factor(scaling);
  ReadGroups(moe);
  ReadExpertBias(moe);
  ReadCapacity(moe);
}

void Parser::ReadGroups(v1::MoeConfig& moe) {
  constexpr char kGroups[] = "moe_router_num_groups";
  constexpr char kKept[] = "moe_router_group_topk";
  const int64_t groups = fields_.Integer({kGroups, 0, 1, 4096, true});
  const int64_t kept = fields_.Integer({kKept, 0, 1, 4096, true});
  if (!fields_.AreFine({kGroups, kKept}) || (groups == 0 && kept == 0)) return;
  if (groups == 0 || kept == 0) {
    fields_.Refuse(
        groups == 0 ? kGroups : kKept,
        absl::StrCat("must be given with ", groups == 0 ? kKept : kGroups));
    return;
  }
  if (kept > moe.top_k()) {
    fields_.Refuse(
        kKept, absl::StrCat("must be at most moe_router_topk, ", moe.top_k(),
                            ": a group's score is the sum of "
                            "moe_router_topk / ",
                            kKept, " scores"));
    return;
  }
  const bool sums = moe.top_k() / kept > 1;
  if (sums && moe.score_function() != v1::SCORE_FUNCTION_SIGMOID &&
      moe.top_k_normalization() == v1::TOP_K_NORMALIZATION_RENORMALIZED) {
    fields_.Refuse(kKept,
                   "must be more than half of moe_router_topk with a softmax "
                   "over the chosen: sums of logits are no group scores here");
    return;
  }
  moe.mutable_expert_groups()->set_groups(groups);
  moe.mutable_expert_groups()->set_kept(kept);
}

void Parser::ReadExpertBias(v1::MoeConfig& moe) {
  constexpr char kEnabled[] = "moe_router_enable_expert_bias";
  constexpr char kRate[] = "moe_router_bias_update_rate";
  const bool is_enabled = fields_.Boolean(kEnabled, false);
  const double rate = fields_.Number(kRate, 1e-3);
  if (!is_enabled) return;
  if (moe.score_function() != v1::SCORE_FUNCTION_SIGMOID) {
    fields_.Refuse(kEnabled, "must be false without sigmoid scores");
  }
  if (!(rate >= 0 && rate <= 1)) fields_.Refuse(kRate, "must be 0 to 1");
  moe.mutable_expert_bias()->set_update_rate(rate);
}

void Parser::ReadCapacity(v1::MoeConfig& moe) {
  constexpr char kFactor[] = "moe_expert_capacity_factor";
  constexpr char kPad[] = "moe_pad_expert_input_to_capacity";
  const double factor = fields_.Number(kFactor, 0, /*nullable=*/true);
  const bool pads = fields_.Boolean(kPad, false);
  const json* policy = fields_.Take("moe_token_drop_policy");
  // Below zero it stands for none.
  if (!fields_.IsGiven(kFactor) || fields_.IsNull(kFactor) || factor < 0) {
    if (pads) {
      fields_.Refuse(kPad, absl::StrCat("must be false without ", kFactor));
    }
    return;
  }
  if (!(factor >= 1e-3 && factor <= 65536)) {
    fields_.Refuse(kFactor, "must be null or 1e-3 to 65536");
  }
  if (policy != nullptr && *policy != "probs") {
    fields_.Refuse("moe_token_drop_policy", "must be \"probs\"");
  }
  moe.mutable_capacity()->set_factor(factor);
  moe.mutable_capacity()->set_pad(pads);
}

void Parser::ReadMoe() {
  v1::ModelConfig& model = config_.model;
  const int64_t experts =
      fields_.Integer({"num_moe_experts", 0, 1, 4096, true});
  // Read whether there are experts or not, so that none is unknown.
  v1::MoeConfig moe;
  moe.set_num_experts(experts);
  moe.set_top_k(fields_.Integer({"moe_router_topk", 2, 1, 4096}));
  ReadRouter(moe);
  moe.set_expert_hidden_size(
      fields_.Integer({"moe_ffn_hidden_size", 0, 1, 1048576, experts == 0}));
  ReadSharedExpert(moe);
  ReadRouterLosses(*moe.mutable_router_loss());
  if (experts > 0) {
    fields_.Require({"moe_ffn_hidden_size"});
    if (moe.top_k() > experts) {
      fields_.Refuse("moe_router_topk",
                     absl::StrCat("must be at most the ", experts, " experts"));
    }
    *model.mutable_moe() = moe;
  }
  ReadFeedForwards();
}

// Which layers have experts and which are dense, by a HybridModel's pattern.
void Parser::ReadPatternsFeedForwards(int64_t dense_width) {
  v1::ModelConfig& model = config_.model;
  MustBe("moe_layer_freq", 1);
  if (model.pattern().find('-') != std::string::npos) {
    fields_.Require({"ffn_hidden_size"});
    model.set_ffn_hidden_size(dense_width);
  }
  if (model.pattern().find('E') == std::string::npos) {
    model.clear_moe();
  } else if (!model.has_moe()) {
    fields_.Refuse("num_moe_experts",
                   "must be given with \"E\" in hybrid_layer_pattern");
  }
}

void Parser::ReadFeedForwards() {
  v1::ModelConfig& model = config_.model;
  const int64_t dense_width =
      fields_.Integer({"ffn_hidden_size", 0, 1, 1048576, true});
  if (!model.pattern().empty()) {
    ReadPatternsFeedForwards(dense_width);
    return;
  }
  ReadDenseLayers();
  const bool all_dense =
      !model.has_moe() || model.dense_layers_size() == model.num_layers();
  if (all_dense || model.dense_layers_size() > 0) {
    fields_.Require({"ffn_hidden_size"});
    model.set_ffn_hidden_size(dense_width);
  }
  if (all_dense) {
    model.clear_moe();
    model.clear_dense_layers();
  }
}

absl::StatusOr<MegatronConfig> Parser::Parse() {
  CheckFeatures();
  ReadSizes();
  ReadMegatronMixers(fields_, config_.model);
  ReadActivation();
  ReadMoe();
  ReadMegatronMtp(fields_, config_.model);
  config_.loss.set_normalization(
      fields_.Boolean("calculate_per_token_loss", false)
          ? v1::LOSS_NORMALIZATION_TOKEN
          : v1::LOSS_NORMALIZATION_MICROBATCH);
  for (const WithoutEffect& field : kWithoutEffect) fields_.Take(field.name);
  fields_.RefuseTheRest("is not known");
  RETURN_IF_ERROR(fields_.Refusals());
  return config_;
}

}  // namespace

absl::StatusOr<MegatronConfig> ParseMegatronConfig(absl::string_view json) {
  ASSIGN_OR_RETURN(const nlohmann::json object,
                   ParseJsonObject(json, kMaxMegatronConfigBytes));
  return Parser(object).Parse();
}

}  // namespace weft::checkpoint

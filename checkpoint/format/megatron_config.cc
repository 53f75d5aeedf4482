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
    {"moe_router_bias_update_rate",
     "of moe_router_enable_expert_bias, which is refused"},
    {"moe_token_drop_policy",
     "of moe_expert_capacity_factor, which is refused"},
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

// Features that no job has.
struct Off {
  const char* name;
  const char* rule;
};

constexpr Off kMustBeFalse[] = {
    {"add_bias_linear", "must be false: linear layers have no biases"},
    {"moe_pad_expert_input_to_capacity",
     "must be false: experts take all rows they get, and no others"},
    {"moe_router_enable_expert_bias",
     "must be false: selection has no bias of its own"},
};

constexpr Off kMustBeNull[] = {
    {"moe_expert_capacity_factor", "must be null: no row is dropped"},
    {"moe_router_group_topk", "must be null: experts are in no groups"},
    {"moe_router_num_groups", "must be null: experts are in no groups"},
    {"moe_router_topk_scaling_factor",
     "must be null: probabilities are not scaled"},
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
  MustBe("moe_router_score_function", "softmax");
  for (const Off& off : kMustBeFalse) {
    if (fields_.Boolean(off.name, false)) fields_.Refuse(off.name, off.rule);
  }
  for (const Off& off : kMustBeNull) {
    if (fields_.TakeUnlessNull(off.name) != nullptr) {
      fields_.Refuse(off.name, off.rule);
    }
  }
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
  } else if (*name == "squared_relu") {
    if (is_gated) {
      fields_.Refuse("gated_linear_unit",
                     "must be false with \"squared_relu\"");
    }
    config_.model.set_mlp_activation(v1::MLP_ACTIVATION_SQUARED_RELU);
  } else {
    fields_.Refuse("activation", "must be \"swiglu\" or \"squared_relu\"");
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

void Parser::ReadMoe() {
  v1::ModelConfig& model = config_.model;
  const int64_t experts =
      fields_.Integer({"num_moe_experts", 0, 1, 4096, true});
  // Read whether there are experts or not, so that none is unknown.
  v1::MoeConfig moe;
  moe.set_num_experts(experts);
  moe.set_top_k(fields_.Integer({"moe_router_topk", 2, 1, 4096}));
  moe.set_top_k_normalization(fields_.Boolean("moe_router_pre_softmax", false)
                                  ? v1::TOP_K_NORMALIZATION_RAW
                                  : v1::TOP_K_NORMALIZATION_RENORMALIZED);
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

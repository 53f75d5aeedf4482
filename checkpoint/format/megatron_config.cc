#include "checkpoint/format/megatron_config.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "checkpoint/format/json_fields.h"
#include "nlohmann/json.hpp"

namespace weft::checkpoint {
namespace {

using nlohmann::json;

constexpr int64_t kMaxInt = INT32_MAX;

// Fields that cannot change what is trained, and why.
struct WithoutEffect {
  const char* name;
  const char* why;
};

constexpr WithoutEffect kWithoutEffect[] = {
    {"beta_fast", "of multi_latent_attention, which is refused"},
    {"beta_slow", "of multi_latent_attention, which is refused"},
    {"kv_lora_rank", "of multi_latent_attention, which is refused"},
    {"mamba_conv_width", "of hybrid_layer_pattern, which is refused"},
    {"mamba_head_dim", "of hybrid_layer_pattern, which is refused"},
    {"mamba_norm_epsilon", "of hybrid_layer_pattern, which is refused"},
    {"mamba_num_groups", "of hybrid_layer_pattern, which is refused"},
    {"mamba_num_heads", "of hybrid_layer_pattern, which is refused"},
    {"mamba_state_dim", "of hybrid_layer_pattern, which is refused"},
    {"max_sequence_length", "a length; rotary positions have none"},
    {"moe_router_bias_update_rate",
     "of moe_router_enable_expert_bias, which is refused"},
    {"moe_token_drop_policy",
     "of moe_expert_capacity_factor, which is refused"},
    {"mscale", "of multi_latent_attention, which is refused"},
    {"mscale_all_dim", "of multi_latent_attention, which is refused"},
    {"mtp_loss_scaling_factor", "of mtp_num_layers, which are refused"},
    {"original_max_position_embeddings",
     "of multi_latent_attention, which is refused"},
    {"q_lora_rank", "of multi_latent_attention, which is refused"},
    {"qk_head_dim", "of multi_latent_attention, which is refused"},
    {"qk_pos_emb_head_dim", "of multi_latent_attention, which is refused"},
    {"rope_type", "of multi_latent_attention, which is refused"},
    {"rotary_scaling_factor", "of multi_latent_attention, which is refused"},
    {"v_head_dim", "of multi_latent_attention, which is refused"},
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
    {"multi_latent_attention", "must be false: attention is grouped-query"},
};

constexpr Off kMustBeNull[] = {
    {"hybrid_layer_pattern", "must be null: every layer has attention"},
    {"moe_expert_capacity_factor", "must be null: no row is dropped"},
    {"moe_router_group_topk", "must be null: experts are in no groups"},
    {"moe_router_num_groups", "must be null: experts are in no groups"},
    {"moe_router_topk_scaling_factor",
     "must be null: probabilities are not scaled"},
    {"mtp_num_layers", "must be null: there is no multi-token prediction"},
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
  void ReadAttention();
  void ReadActivation();
  void ReadMoe();
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
  MustBe("model_class", "GPTModel");
  MustBe("position_embedding_type", "rope");
  MustBe("normalization", "RMSNorm");
  MustBe("rotary_percent", 1.0);
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
  model.set_num_layers(fields_.Integer({"num_layers", 1, 1, 1024}));
  model.set_tie_embeddings(
      fields_.Boolean("share_embeddings_and_output_weights", false));
  const double epsilon = fields_.Number("layernorm_epsilon", 1e-5);
  if (!(epsilon >= 1e-30 && epsilon < 1)) {
    fields_.Refuse("layernorm_epsilon", "must be 1e-30 to below 1");
  }
  model.set_norm_epsilon(epsilon);
}

void Parser::ReadAttention() {
  v1::AttentionConfig& attention = *config_.model.mutable_attention();
  const int64_t heads = fields_.Integer({"num_attention_heads", 1, 1, 1024});
  const int64_t groups =
      fields_.Integer({"num_query_groups", heads, 1, 1024, true});
  if (fields_.AreFine({"num_attention_heads", "num_query_groups"}) &&
      heads % groups != 0) {
    fields_.Refuse(
        "num_query_groups",
        absl::StrCat(groups, " must divide num_attention_heads, ", heads));
  }
  const int64_t width = fields_.Integer({"kv_channels", 0, 2, 1024, true});
  if (width % 2 != 0) fields_.Refuse("kv_channels", "must be even");
  const double theta = fields_.Number("rotary_base", 10000);
  if (!(theta > 1)) fields_.Refuse("rotary_base", "must be above 1");
  attention.set_num_heads(heads);
  attention.set_num_kv_heads(groups);
  attention.set_head_dim(width);  // 0: hidden_size / num_heads, as there
  attention.set_rope_theta(theta);
  attention.set_qk_norm(fields_.Boolean("qk_layernorm", false));
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
  const int64_t dense_width =
      fields_.Integer({"ffn_hidden_size", 0, 1, 1048576, true});
  ReadSharedExpert(moe);
  ReadRouterLosses(*moe.mutable_router_loss());
  ReadDenseLayers();
  if (experts > 0) {
    fields_.Require({"moe_ffn_hidden_size"});
    if (moe.top_k() > experts) {
      fields_.Refuse("moe_router_topk",
                     absl::StrCat("must be at most the ", experts, " experts"));
    }
    *model.mutable_moe() = moe;
  }
  const bool all_dense =
      experts == 0 || model.dense_layers_size() == model.num_layers();
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
  ReadAttention();
  ReadActivation();
  ReadMoe();
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

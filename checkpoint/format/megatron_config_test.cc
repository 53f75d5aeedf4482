#include "checkpoint/format/megatron_config.h"

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace weft::checkpoint {
namespace {

using ::nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kMoe[] = R"({
  "model_class": "GPTModel", "vocab_size": 160, "max_sequence_length": 64,
  "position_embedding_type": "rope", "rotary_base": 10000,
  "rotary_percent": 1.0, "share_embeddings_and_output_weights": false,
  "activation": "swiglu", "hybrid_layer_pattern": null, "num_layers": 3,
  "hidden_size": 64, "num_attention_heads": 4, "num_query_groups": 2,
  "kv_channels": 16, "ffn_hidden_size": 96, "qk_layernorm": false,
  "normalization": "RMSNorm", "layernorm_epsilon": 1e-05,
  "add_bias_linear": false, "gated_linear_unit": true, "num_moe_experts": 8,
  "moe_layer_freq": 1, "moe_ffn_hidden_size": 24, "moe_router_topk": 2,
  "moe_router_score_function": "softmax", "moe_router_pre_softmax": false,
  "moe_router_topk_scaling_factor": null, "moe_router_num_groups": null,
  "moe_router_group_topk": null, "moe_router_enable_expert_bias": false,
  "moe_router_bias_update_rate": 0.001,
  "moe_router_load_balancing_type": "none", "moe_aux_loss_coeff": 0.0,
  "moe_z_loss_coeff": null, "moe_expert_capacity_factor": null,
  "moe_token_drop_policy": "probs", "moe_pad_expert_input_to_capacity": false,
  "moe_shared_expert_intermediate_size": null, "moe_shared_expert_gate": false,
  "calculate_per_token_loss": false, "mtp_num_layers": null,
  "mtp_loss_scaling_factor": 0.1, "multi_latent_attention": false})";

constexpr char kModel[] = R"(
  vocab_size: 160 hidden_size: 64 num_layers: 3
  attention { num_heads: 4 num_kv_heads: 2 head_dim: 16 rope_theta: 10000 }
  moe { num_experts: 8 top_k: 2 expert_hidden_size: 24
        top_k_normalization: TOP_K_NORMALIZATION_RENORMALIZED
        router_loss { } }
  norm_epsilon: 1e-5 mlp_activation: MLP_ACTIVATION_SWIGLU)";

// kMoe with some fields set.
std::string With(const std::string& fields) {
  json object = json::parse(kMoe);
  object.update(json::parse(fields));
  return object.dump();
}

v1::ModelConfig ModelOf(const std::string& text) {
  const auto config = ParseMegatronConfig(text);
  EXPECT_OK(config);
  return config.ok() ? config->model : v1::ModelConfig();
}

struct Honoured {
  const char* fields;
  const char* model;  // what changes, as text
};

TEST(MegatronConfigTest, FieldsAreInTheModel) {
  for (const Honoured& c : {
           Honoured{"{}", ""},
           Honoured{R"({"rotary_base": 5000.5})",
                    "attention { rope_theta: 5000.5 }"},
           Honoured{R"({"num_query_groups": null})",
                    "attention { num_kv_heads: 4 }"},
           Honoured{R"({"qk_layernorm": true})", "attention { qk_norm: true }"},
           Honoured{R"({"share_embeddings_and_output_weights": true})",
                    "tie_embeddings: true"},
           Honoured{R"({"activation": "squared_relu",
                        "gated_linear_unit": false})",
                    "mlp_activation: MLP_ACTIVATION_SQUARED_RELU"},
           Honoured{R"({"moe_router_pre_softmax": true})",
                    "moe { top_k_normalization: TOP_K_NORMALIZATION_RAW }"},
           Honoured{R"({"activation": "gelu", "gated_linear_unit": false})",
                    "mlp_activation: MLP_ACTIVATION_GELU"},
           Honoured{R"({"moe_router_score_function": "sigmoid",
                        "moe_router_pre_softmax": true})",
                    "moe { score_function: SCORE_FUNCTION_SIGMOID }"},
           Honoured{R"({"moe_router_score_function": "sigmoid",
                        "moe_router_topk": 1})",
                    "moe { score_function: SCORE_FUNCTION_SIGMOID top_k: 1 "
                    "top_k_normalization: TOP_K_NORMALIZATION_RAW }"},
           Honoured{R"({"moe_router_topk_scaling_factor": 2.5})",
                    "moe { scaling_factor: 2.5 }"},
           Honoured{R"({"moe_router_num_groups": 4,
                        "moe_router_group_topk": 2})",
                    "moe { expert_groups { groups: 4 kept: 2 } }"},
           Honoured{R"({"moe_router_score_function": "sigmoid",
                        "moe_router_enable_expert_bias": true})",
                    "moe { score_function: SCORE_FUNCTION_SIGMOID "
                    "expert_bias { update_rate: 0.001 } }"},
           Honoured{R"({"moe_expert_capacity_factor": 1.5,
                        "moe_pad_expert_input_to_capacity": true})",
                    "moe { capacity { factor: 1.5 pad: true } }"},
           Honoured{R"({"moe_expert_capacity_factor": -1.0})", ""},
           Honoured{R"({"moe_shared_expert_intermediate_size": 56,
                        "moe_shared_expert_gate": true})",
                    "moe { shared_expert_hidden_size: 56 "
                    "shared_expert_gate: true }"},
           Honoured{R"({"moe_layer_freq": [0, 1, 1]})",
                    "dense_layers: 0 ffn_hidden_size: 96"},
           Honoured{R"({"moe_layer_freq": 2})",
                    "dense_layers: 1 ffn_hidden_size: 96"},
           Honoured{R"({"rotary_percent": 0.5})",
                    "attention { rotary_fraction: 0.5 }"},
           Honoured{R"({"mtp_num_layers": 2, "mtp_loss_scaling_factor": 0.3})",
                    "mtp { depth: 2 loss_factor: 0.3 }"},
           Honoured{R"({"moe_layer_freq": [1, 1, 0], "mtp_num_layers": 1})",
                    "dense_layers: 2 ffn_hidden_size: 96 "
                    "mtp { depth: 1 loss_factor: 0.1 dense: true }"},
           Honoured{R"({"moe_z_loss_coeff": 0.001,
                        "moe_router_load_balancing_type": "aux_loss",
                        "moe_aux_loss_coeff": 0.02})",
                    "moe { router_loss { aux: 0.02 z: 0.001 } }"},
           Honoured{R"({"moe_router_load_balancing_type": "global_aux_loss",
                        "moe_aux_loss_coeff": 0.02})",
                    "moe { router_loss { global_aux: 0.02 } }"},
           Honoured{R"({"moe_router_load_balancing_type":
                          ["aux_loss", "seq_aux_loss"],
                        "moe_aux_loss_coeff": [0.02, 0.01]})",
                    "moe { router_loss { aux: 0.02 sequence_aux: 0.01 } }"},
       }) {
    v1::ModelConfig model;
    google::protobuf::TextFormat::Parser parser;
    ASSERT_TRUE(parser.ParseFromString(kModel, &model));
    ASSERT_TRUE(parser.MergeFromString(c.model, &model)) << c.model;
    const v1::ModelConfig read = ModelOf(With(c.fields));
    EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(read, model))
        << c.fields << read.DebugString();
  }
}

TEST(MegatronConfigTest, WithoutExpertsEveryLayerIsDense) {
  for (const char* fields :
       {R"({"num_moe_experts": null})", R"({"moe_layer_freq": [0, 0, 0]})"}) {
    const v1::ModelConfig model = ModelOf(With(fields));
    EXPECT_FALSE(model.has_moe());
    EXPECT_EQ(model.dense_layers_size(), 0);
    EXPECT_EQ(model.ffn_hidden_size(), 96);
  }
}

TEST(MegatronConfigTest, TheLossIsNormalizedAsItSays) {
  ASSERT_OK_AND_ASSIGN(const MegatronConfig by_microbatch,
                       ParseMegatronConfig(kMoe));
  EXPECT_EQ(by_microbatch.loss.normalization(),
            v1::LOSS_NORMALIZATION_MICROBATCH);
  ASSERT_OK_AND_ASSIGN(
      const MegatronConfig by_token,
      ParseMegatronConfig(With(R"({"calculate_per_token_loss": true})")));
  EXPECT_EQ(by_token.loss.normalization(), v1::LOSS_NORMALIZATION_TOKEN);
}

// Fields, and what is said of them.
constexpr std::pair<const char*, const char*> kRefused[] = {
    {R"({"model_class": "T5Model"})",
     "model_class=\"T5Model\": must be \"GPTModel\" or \"HybridModel\""},
    {R"({"model_class": "HybridModel"})",
     "hybrid_layer_pattern=null: must be given for a HybridModel"},
    {R"({"hybrid_layer_pattern": "*E"})",
     "hybrid_layer_pattern=\"*E\": must be null but for a HybridModel"},
    {R"({"position_embedding_type": "learned_absolute"})",
     "must be \"rope\" or \"none\""},
    {R"({"normalization": "LayerNorm"})", "normalization=\"LayerNorm\""},
    {R"({"rotary_percent": 0.3})",
     "rotary_percent=0.3: must be above 0 to 1, an even number of the 16"},
    {R"({"rotary_base": 1})", "rotary_base=1: must be above 1"},
    {R"({"vocab_size": 1})", "vocab_size=1: must be an integer of 2"},
    {R"({"layernorm_epsilon": 1})", "layernorm_epsilon=1: must be 1e-30"},
    {R"({"num_query_groups": 3})",
     "num_query_groups=3: 3 must divide num_attention_heads, 4"},
    {R"({"kv_channels": 15})", "kv_channels=15: must be even"},
    {R"({"gated_linear_unit": false})",
     "gated_linear_unit=false: must be true with \"swiglu\""},
    {R"({"activation": "squared_relu"})",
     "gated_linear_unit=true: must be false with \"squared_relu\""},
    {R"({"activation": "gelu"})",
     "gated_linear_unit=true: must be false with \"gelu\""},
    {R"({"activation": "relu"})", "activation=\"relu\": must be"},
    {R"({"add_bias_linear": true})", "add_bias_linear=true: must be false"},
    {R"({"mtp_num_layers": 17})", "mtp_num_layers=17: must be an integer of 1"},
    {R"({"moe_expert_capacity_factor": 0.0})",
     "moe_expert_capacity_factor=0.0: must be null or"},
    {R"({"moe_expert_capacity_factor": 1.0,
           "moe_token_drop_policy": "position"})",
     "moe_token_drop_policy=\"position\": must be \"probs\""},
    {R"({"moe_pad_expert_input_to_capacity": true})",
     "moe_pad_expert_input_to_capacity=true: must be false without"},
    {R"({"moe_router_score_function": "sqrtsoftplus"})",
     "moe_router_score_function=\"sqrtsoftplus\": must be \"softmax\" or"},
    {R"({"moe_router_enable_expert_bias": true})",
     "moe_router_enable_expert_bias=true: must be false without sigmoid"},
    {R"({"moe_router_score_function": "sigmoid",
           "moe_router_enable_expert_bias": true,
           "moe_router_bias_update_rate": 2})",
     "moe_router_bias_update_rate=2: must be 0 to 1"},
    {R"({"moe_router_topk_scaling_factor": 0})",
     "moe_router_topk_scaling_factor=0: must be null or"},
    {R"({"moe_router_num_groups": 4})",
     "moe_router_group_topk=null: must be given with moe_router_num_groups"},
    {R"({"moe_router_group_topk": 2})",
     "moe_router_num_groups=null: must be given with moe_router_group_topk"},
    {R"({"moe_router_num_groups": 4, "moe_router_group_topk": 3})",
     "moe_router_group_topk=3: must be at most moe_router_topk, 2"},
    {R"({"moe_router_num_groups": 4, "moe_router_group_topk": 1})",
     "moe_router_group_topk=1: must be more than half"},
    {R"({"moe_router_topk": 9})",
     "moe_router_topk=9: must be at most the 8 experts"},
    {R"({"moe_router_load_balancing_type": "sinkhorn"})",
     "moe_router_load_balancing_type=\"sinkhorn\": must be of"},
    {R"({"moe_router_load_balancing_type": ["aux_loss"]})",
     "moe_aux_loss_coeff=0.0: must be a list like"},
    {R"({"moe_router_load_balancing_type": ["aux_loss"],
           "moe_aux_loss_coeff": [null]})",
     "moe_aux_loss_coeff=[null]: must be names and as many numbers"},
    {R"({"moe_layer_freq": [1, 1]})",
     "moe_layer_freq=[1,1]: must be a list of 0 and 1 for the 3 layers"},
    {R"({"moe_shared_expert_gate": true})",
     "moe_shared_expert_gate=true: must be false without "
     "moe_shared_expert_intermediate_size"},
    {R"({"window_size": 128})", "window_size=128: is not known"},
};

TEST(MegatronConfigTest, AFieldThatCannotBeHonouredIsRefusedByName) {
  for (const auto& [fields, message] : kRefused) {
    EXPECT_THAT(ParseMegatronConfig(With(fields)),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr(message), Not(HasSubstr(";")))))
        << fields;
  }
}

TEST(MegatronConfigTest, FieldsOfFeaturesThatAreOffChangeNothing) {
  EXPECT_EQ(ModelOf(With(R"({"mtp_loss_scaling_factor": 0.3,
                             "moe_router_bias_update_rate": 0.1,
                             "moe_token_drop_policy": "position",
                             "max_sequence_length": 4096, "q_lora_rank": 48,
                             "mamba_num_heads": 8})"))
                .SerializeAsString(),
            ModelOf(kMoe).SerializeAsString());
}

TEST(MegatronConfigTest, AllThatIsWrongIsToldAtOnce) {
  EXPECT_THAT(ParseMegatronConfig("{}"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("vocab_size is absent: must be given"),
                             HasSubstr("num_layers is absent: must be given"),
                             HasSubstr("ffn_hidden_size is absent"))));
  EXPECT_THAT(ParseMegatronConfig("[]"),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace weft::checkpoint

// What ParseMegatronConfig makes of MLA, Mamba-2 and hybrid patterns.
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "base/status_matchers.h"
#include "checkpoint/format/megatron_config.h"
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

constexpr char kHybrid[] = R"({
  "model_class": "HybridModel", "hybrid_layer_pattern": "M*EM-E",
  "vocab_size": 160, "num_layers": 6, "hidden_size": 64,
  "position_embedding_type": "rope", "rotary_base": 10000,
  "num_attention_heads": 4, "num_query_groups": 2, "kv_channels": 16,
  "ffn_hidden_size": 96, "layernorm_epsilon": 1e-05, "num_moe_experts": 8,
  "moe_layer_freq": 1, "moe_ffn_hidden_size": 16, "moe_router_topk": 2,
  "mtp_num_layers": null, "mtp_loss_scaling_factor": 0.1,
  "mamba_state_dim": 16, "mamba_head_dim": 16, "mamba_num_groups": 2,
  "mamba_num_heads": 8, "multi_latent_attention": false,
  "mamba_conv_width": 4, "mamba_norm_epsilon": 1e-05})";

constexpr char kHybridModel[] = R"(
  vocab_size: 160 hidden_size: 64 num_layers: 6 pattern: "M*EM-E"
  attention { num_heads: 4 num_kv_heads: 2 head_dim: 16 rope_theta: 10000 }
  mamba { num_heads: 8 head_dim: 16 num_groups: 2 state_size: 16
          conv_width: 4 }
  moe { num_experts: 8 top_k: 2 expert_hidden_size: 16
        top_k_normalization: TOP_K_NORMALIZATION_RENORMALIZED
        router_loss { } }
  ffn_hidden_size: 96 norm_epsilon: 1e-5
  mlp_activation: MLP_ACTIVATION_SWIGLU)";

constexpr char kLatent[] = R"({
  "model_class": "GPTModel", "vocab_size": 160, "num_layers": 3,
  "hidden_size": 64, "position_embedding_type": "rope", "rotary_base": 10000,
  "num_attention_heads": 4, "ffn_hidden_size": 96, "layernorm_epsilon": 1e-05,
  "num_moe_experts": 8, "moe_layer_freq": [0, 1, 1],
  "moe_ffn_hidden_size": 16, "moe_router_topk": 2, "qk_layernorm": true,
  "multi_latent_attention": true, "q_lora_rank": 48, "kv_lora_rank": 32,
  "qk_head_dim": 24, "qk_pos_emb_head_dim": 16, "v_head_dim": 20,
  "rope_type": "rope", "rotary_scaling_factor": 40,
  "original_max_position_embeddings": 4096, "beta_fast": 32, "beta_slow": 1,
  "mscale": 1.0, "mscale_all_dim": 0.0})";

constexpr char kLatentModel[] = R"(
  vocab_size: 160 hidden_size: 64 num_layers: 3 dense_layers: 0
  attention { num_heads: 4 rope_theta: 10000 }
  mla { q_lora_rank: 48 kv_lora_rank: 32 qk_nope_head_dim: 24
        qk_rope_head_dim: 16 v_head_dim: 20 }
  moe { num_experts: 8 top_k: 2 expert_hidden_size: 16
        top_k_normalization: TOP_K_NORMALIZATION_RENORMALIZED
        router_loss { } }
  ffn_hidden_size: 96 norm_epsilon: 1e-5
  mlp_activation: MLP_ACTIVATION_SWIGLU)";

// `text` with some fields set.
std::string With(const char* text, const std::string& fields) {
  json object = json::parse(text);
  object.update(json::parse(fields));
  return object.dump();
}

struct Honoured {
  const char* fields;
  const char* model;  // what changes, as text
};

void ExpectHonoured(const char* text, const char* model_text,
                    const Honoured& honoured) {
  v1::ModelConfig model;
  google::protobuf::TextFormat::Parser parser;
  ASSERT_TRUE(parser.ParseFromString(model_text, &model));
  ASSERT_TRUE(parser.MergeFromString(honoured.model, &model));
  ASSERT_OK_AND_ASSIGN(const MegatronConfig read,
                       ParseMegatronConfig(With(text, honoured.fields)));
  EXPECT_TRUE(
      google::protobuf::util::MessageDifferencer::Equals(read.model, model))
      << honoured.fields << read.model.DebugString();
}

TEST(MegatronLayersTest, FieldsOfAHybridModelAreInTheModel) {
  for (const Honoured& honoured : {
           Honoured{"{}", ""},
           Honoured{R"({"mamba_conv_width": 3})", "mamba { conv_width: 3 }"},
           Honoured{R"({"hybrid_layer_pattern": "[M*E]M-E"})",
                    "pattern: '[M*E]M-E'"},
           Honoured{R"({"hybrid_layer_pattern": "M*EM-E/*E",
                        "mtp_loss_scaling_factor": 0.3})",
                    "pattern: 'M*EM-E/*E' mtp { loss_factor: 0.3 }"},
       }) {
    ExpectHonoured(kHybrid, kHybridModel, honoured);
  }
}

TEST(MegatronLayersTest, WithoutPositionsNothingIsRotated) {
  ASSERT_OK_AND_ASSIGN(const MegatronConfig read,
                       ParseMegatronConfig(With(
                           kHybrid, R"({"position_embedding_type": "none"})")));
  EXPECT_TRUE(read.model.attention().no_rope());
  EXPECT_EQ(read.model.attention().rope_theta(), 0);
}

TEST(MegatronLayersTest, WhatNoSymbolHasIsLeftOut) {
  ASSERT_OK_AND_ASSIGN(
      const MegatronConfig read,
      ParseMegatronConfig(With(kHybrid, R"({"hybrid_layer_pattern": "MM",
                                            "num_layers": 2})")));
  EXPECT_FALSE(read.model.has_attention());
  EXPECT_FALSE(read.model.has_moe());
  EXPECT_EQ(read.model.ffn_hidden_size(), 0);
  EXPECT_TRUE(read.model.has_mamba());
}

TEST(MegatronLayersTest, FieldsOfMlaAreInTheModel) {
  for (const Honoured& honoured : {
           Honoured{"{}", ""},
           Honoured{R"({"q_lora_rank": null})", "mla { q_lora_rank: 0 }"},
           Honoured{R"({"rope_type": "yarn", "rotary_scaling_factor": 4.0,
                        "original_max_position_embeddings": 256,
                        "beta_fast": 8.0, "beta_slow": 2.0, "mscale": 0.5,
                        "mscale_all_dim": 0.8})",
                    "mla { yarn { factor: 4 original_positions: 256 "
                    "beta_fast: 8 beta_slow: 2 mscale: 0.5 "
                    "mscale_all_dim: 0.8 } }"},
       }) {
    ExpectHonoured(kLatent, kLatentModel, honoured);
  }
}

// Fields, and what is said of them.
constexpr std::pair<const char*, const char*> kRefusedHybrids[] = {
    {R"({"hybrid_layer_pattern": "M*GM-E"})",
     "hybrid_layer_pattern=\"M*GM-E\": \"G\" is not supported"},
    {R"({"hybrid_layer_pattern": "M*E|M-E"})", "\"|\" is not supported"},
    {R"({"hybrid_layer_pattern": ""})", "must be text of 1 to 4096 bytes"},
    {R"({"num_layers": 5})",
     "num_layers=5: must be the 6 symbols of hybrid_layer_pattern"},
    {R"({"hybrid_layer_pattern": "M+EM-E"})",
     "multi_latent_attention=false: must be true with \"+\""},
    {R"({"mamba_num_groups": 3})",
     "mamba_num_groups=3: 3 must divide mamba_num_heads, 8"},
    {R"({"mamba_norm_epsilon": 1e-6})",
     "mamba_norm_epsilon=1e-06: must be as layernorm_epsilon"},
    {R"({"num_moe_experts": null})",
     "num_moe_experts=null: must be given with \"E\""},
    {R"({"moe_layer_freq": 2})", "moe_layer_freq=2: must be 1"},
    {R"({"mtp_num_layers": 1})",
     "mtp_num_layers=1: must be null with hybrid_layer_pattern"},
};

constexpr std::pair<const char*, const char*> kRefusedLatents[] = {
    {R"({"qk_layernorm": false})",
     "qk_layernorm=false: must be true with multi_latent_attention"},
    {R"({"rope_type": "linear"})",
     "rope_type=\"linear\": must be \"rope\" or \"yarn\""},
    {R"({"mscale_all_dim": 1})",
     "mscale_all_dim=1: must be 0 with a rope_type"},
    {R"({"rotary_percent": 0.5})", "rotary_percent=0.5: must be 1 with"},
    {R"({"qk_pos_emb_head_dim": 15})", "qk_pos_emb_head_dim=15: must be even"},
    {R"({"kv_lora_rank": 0})", "kv_lora_rank=0: must be an integer of 1"},
    {R"({"rope_type": "yarn", "beta_slow": 0})", "beta_slow=0: must be 1e-30"},
};

TEST(MegatronLayersTest, AFieldThatCannotBeHonouredIsRefusedByName) {
  const auto expect = [](const std::string& text, const char* message) {
    EXPECT_THAT(ParseMegatronConfig(text),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr(message), Not(HasSubstr(";")))))
        << text;
  };
  for (const auto& [fields, message] : kRefusedHybrids) {
    expect(With(kHybrid, fields), message);
  }
  for (const auto& [fields, message] : kRefusedLatents) {
    expect(With(kLatent, fields), message);
  }
}

TEST(MegatronLayersTest, AnAbsentEpsilonOfMixersIsMegatronsOwn) {
  json config = json::parse(kHybrid);
  config.erase("mamba_norm_epsilon");
  EXPECT_OK(ParseMegatronConfig(config.dump()));
  config["layernorm_epsilon"] = 1e-6;
  EXPECT_THAT(ParseMegatronConfig(config.dump()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("mamba_norm_epsilon is absent: must be as "
                                 "layernorm_epsilon, 1e-06")));
}

}  // namespace
}  // namespace weft::checkpoint

// What ParseHfConfig makes of DeepSeek-V3 and of the families with Mamba-2.
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "checkpoint/format/hugging_face_config.h"
#include "checkpoint/format/hugging_face_hybrid_texts.h"
#include "checkpoint/format/hugging_face_texts.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"

namespace weft::checkpoint {
namespace {

void ExpectModel(const std::string& text, HfFamily family,
                 const std::string& model_text) {
  v1::ModelConfig model;
  ASSERT_TRUE(
      google::protobuf::TextFormat::ParseFromString(model_text, &model));
  ASSERT_OK_AND_ASSIGN(const HfConfig config, ParseHfConfig(text));
  EXPECT_EQ(config.family, family);
  EXPECT_TRUE(
      google::protobuf::util::MessageDifferencer::Equals(config.model, model))
      << config.model.DebugString();
}

v1::ModelConfig ModelOf(const std::string& text) {
  const auto config = ParseHfConfig(text);
  EXPECT_OK(config);
  return config.ok() ? config->model : v1::ModelConfig();
}

TEST(HfHybridsTest, ADeepseekV3) {
  ExpectModel(kDeepseekV3, HfFamily::kDeepseekV3,
              R"(vocab_size: 160 hidden_size: 64
                 pattern: "[+-][+E][+E]" ffn_hidden_size: 112
                 attention { num_heads: 4 rope_theta: 10000 }
                 mla { q_lora_rank: 48 kv_lora_rank: 32 qk_nope_head_dim: 24
                       qk_rope_head_dim: 16 v_head_dim: 20 }
                 moe { num_experts: 8 top_k: 3 expert_hidden_size: 24
                       shared_expert_hidden_size: 24
                       score_function: SCORE_FUNCTION_SIGMOID
                       top_k_normalization: TOP_K_NORMALIZATION_RENORMALIZED
                       scaling_factor: 2.5
                       expert_groups { groups: 4 kept: 2 scores: 2 }
                       expert_bias {} }
                 norm_epsilon: 1e-6)");
}

TEST(HfHybridsTest, AMamba2) {
  ExpectModel(kMamba2, HfFamily::kMamba2,
              R"(vocab_size: 160 hidden_size: 64 pattern: "MM"
                 mamba { num_heads: 8 head_dim: 16 num_groups: 1 state_size: 16
                         conv_width: 4 chunk_size: 8 }
                 norm_epsilon: 1e-5)");
}

TEST(HfHybridsTest, ABamba) {
  ExpectModel(kBamba, HfFamily::kBamba,
              R"(vocab_size: 160 hidden_size: 64
                 pattern: "[M-][*-][M-]" ffn_hidden_size: 96
                 attention { num_heads: 4 num_kv_heads: 2 head_dim: 16
                             rope_theta: 10000 rotary_fraction: 0.5 }
                 mamba { num_heads: 8 head_dim: 16 num_groups: 1 state_size: 16
                         conv_width: 4 chunk_size: 8 }
                 norm_epsilon: 1e-5)");
}

TEST(HfHybridsTest, AGraniteMoeHybrid) {
  ExpectModel(kGraniteMoeHybrid, HfFamily::kGraniteMoeHybrid,
              R"(vocab_size: 160 hidden_size: 64
                 pattern: "[ME][*E][ME]"
                 attention { num_heads: 4 num_kv_heads: 2 head_dim: 16
                             no_rope: true softmax_scale: 1 }
                 mamba { num_heads: 8 head_dim: 16 num_groups: 1 state_size: 16
                         conv_width: 4 chunk_size: 8 }
                 moe { num_experts: 8 top_k: 3 expert_hidden_size: 32
                       shared_expert_hidden_size: 48
                       top_k_normalization: TOP_K_NORMALIZATION_RENORMALIZED }
                 embedding_multiplier: 1 residual_multiplier: 1
                 logits_divisor: 1 norm_epsilon: 1e-6)");
}

TEST(HfHybridsTest, ANemotronH) {
  ExpectModel(kNemotronH, HfFamily::kNemotronH,
              R"(vocab_size: 160 hidden_size: 64
                 pattern: "ME*-ME" ffn_hidden_size: 96
                 mlp_activation: MLP_ACTIVATION_SQUARED_RELU
                 attention { num_heads: 4 num_kv_heads: 2 head_dim: 16
                             no_rope: true }
                 mamba { num_heads: 8 head_dim: 16 num_groups: 2 state_size: 16
                         conv_width: 4 chunk_size: 8 time_step_min: 0.001 }
                 moe { num_experts: 8 top_k: 3 expert_hidden_size: 24
                       shared_expert_hidden_size: 40
                       score_function: SCORE_FUNCTION_SIGMOID
                       top_k_normalization: TOP_K_NORMALIZATION_RENORMALIZED
                       scaling_factor: 2.5 expert_bias {} }
                 norm_epsilon: 1e-5)");
}

TEST(HfHybridsTest, WithoutFieldsADeepseekV3IsItsFamilysDefault) {
  std::string pattern = "[+-][+-][+-]";
  for (int layer = 3; layer < 61; ++layer) pattern += "[+E]";
  ExpectModel(R"({"model_type": "deepseek_v3"})", HfFamily::kDeepseekV3,
              absl::StrCat("pattern: \"", pattern,
                           R"(" vocab_size: 129280 hidden_size: 7168
                 ffn_hidden_size: 18432
                 attention { num_heads: 128 rope_theta: 10000 }
                 mla { q_lora_rank: 1536 kv_lora_rank: 512 qk_nope_head_dim: 128
                       qk_rope_head_dim: 64 v_head_dim: 128 }
                 moe { num_experts: 256 top_k: 8 expert_hidden_size: 2048
                       shared_expert_hidden_size: 2048
                       score_function: SCORE_FUNCTION_SIGMOID
                       top_k_normalization: TOP_K_NORMALIZATION_RENORMALIZED
                       scaling_factor: 2.5
                       expert_groups { groups: 8 kept: 4 scores: 2 }
                       expert_bias {} }
                 norm_epsilon: 1e-6)"));
}

TEST(HfHybridsTest, WithoutFieldsABambaIsItsFamilysDefault) {
  std::string pattern;
  for (int layer = 0; layer < 32; ++layer) pattern += "[M-]";
  ExpectModel(R"({"model_type": "bamba", "pad_token_id": null})",
              HfFamily::kBamba,
              absl::StrCat("pattern: \"", pattern, R"(" vocab_size: 128000
                 hidden_size: 4096 ffn_hidden_size: 14336
                 mamba { num_heads: 128 head_dim: 64 num_groups: 1
                         state_size: 256 conv_width: 4 chunk_size: 256 }
                 norm_epsilon: 1e-5)"));
}

TEST(HfHybridsTest, WithoutFieldsANemotronHIsItsFamilysDefault) {
  ExpectModel(R"({"model_type": "nemotron_h"})", HfFamily::kNemotronH,
              R"(vocab_size: 131072 hidden_size: 4096
                 pattern: "ME*-" ffn_hidden_size: 21504
                 mlp_activation: MLP_ACTIVATION_SQUARED_RELU
                 attention { num_heads: 32 num_kv_heads: 8 head_dim: 128
                             no_rope: true }
                 mamba { num_heads: 128 head_dim: 64 num_groups: 8
                         state_size: 128 conv_width: 4 chunk_size: 128
                         time_step_min: 0.001 }
                 moe { num_experts: 8 top_k: 2 expert_hidden_size: 7688
                       shared_expert_hidden_size: 7688
                       score_function: SCORE_FUNCTION_SIGMOID
                       top_k_normalization: TOP_K_NORMALIZATION_RENORMALIZED
                       scaling_factor: 1 expert_bias {} }
                 norm_epsilon: 1e-5)");
}

TEST(HfHybridsTest, OnlyNemotronHsMixersHaveANormForEachGroup) {
  const auto mixer = [](const char* text, const char* field) {
    return ModelOf(With(text, absl::StrCat("{\"", field, "\": 2}"))).mamba();
  };
  for (const auto& [text, field] :
       {std::pair(kMamba2, "n_groups"), std::pair(kBamba, "mamba_n_groups"),
        std::pair(kGraniteMoeHybrid, "mamba_n_groups")}) {
    EXPECT_EQ(mixer(text, field).num_groups(), 2) << text;
    EXPECT_TRUE(mixer(text, field).norm_over_all_groups()) << text;
  }
  EXPECT_FALSE(mixer(kNemotronH, "n_groups").norm_over_all_groups());
}

TEST(HfHybridsTest, WhichRowLookUpsDoNotTrain) {
  const v1::ModelConfig bamba = ModelOf(With(kBamba, R"({"pad_token_id": 7})"));
  EXPECT_EQ(bamba.padding_token(), 7);
  EXPECT_FALSE(ModelOf(kBamba).has_padding_token());
  // Bamba's is 0 where nothing is said.
  const v1::ModelConfig absent = ModelOf(R"({"model_type": "bamba"})");
  EXPECT_TRUE(absent.has_padding_token());
  EXPECT_EQ(absent.padding_token(), 0);
  EXPECT_EQ(ModelOf(With(kGraniteMoeHybrid, R"({"pad_token_id": -1})"))
                .padding_token(),
            159);
  EXPECT_FALSE(
      ModelOf(R"({"model_type": "granitemoehybrid"})").has_padding_token());
  // These train every row.
  EXPECT_FALSE(
      ModelOf(With(kMamba2, R"({"pad_token_id": 7})")).has_padding_token());
  EXPECT_FALSE(
      ModelOf(With(kNemotronH, R"({"pad_token_id": 7})")).has_padding_token());
}

TEST(HfHybridsTest, AllMultipliersOfGraniteCount) {
  const v1::ModelConfig model =
      ModelOf(With(kGraniteMoeHybrid, R"({"attention_multiplier": 0.0078125,
                             "embedding_multiplier": 12,
                             "residual_multiplier": 0.22,
                             "logits_scaling": 6})"));
  EXPECT_EQ(model.attention().softmax_scale(), 0.0078125);
  EXPECT_EQ(model.embedding_multiplier(), 12);
  EXPECT_EQ(model.residual_multiplier(), 0.22);
  EXPECT_EQ(model.logits_divisor(), 6);
}

TEST(HfHybridsTest, PositionsOfGraniteAreRotatedWhereItSaysSo) {
  const v1::ModelConfig rotated = ModelOf(
      With(kGraniteMoeHybrid, R"({"position_embedding_type": "rope"})"));
  EXPECT_FALSE(rotated.attention().no_rope());
  EXPECT_EQ(rotated.attention().rope_theta(), 10000);
  EXPECT_TRUE(
      ModelOf(With(kGraniteMoeHybrid, R"({"position_embedding_type": "nope"})"))
          .attention()
          .no_rope());
}

TEST(HfHybridsTest, AGraniteWithoutExpertsIsDense) {
  const v1::ModelConfig model =
      ModelOf(With(kGraniteMoeHybrid, R"({"num_local_experts": 0,
                                          "num_experts_per_tok": 1})"));
  EXPECT_EQ(model.pattern(), "[M-][*-][M-]");
  EXPECT_EQ(model.ffn_hidden_size(), 48);
  EXPECT_FALSE(model.has_moe());
}

TEST(HfHybridsTest, LayersHaveOlderWords) {
  EXPECT_EQ(ModelOf(With(kGraniteMoeHybrid, R"({"layer_types": [
                "attention", "mamba", "mamba"]})"))
                .pattern(),
            "[*E][ME][ME]");
  EXPECT_EQ(
      ModelOf(With(kGraniteMoeHybrid, R"({"layer_types": null})")).pattern(),
      "[ME][ME][ME]");
  EXPECT_EQ(ModelOf(With(kNemotronH, R"({"layers_block_type": null,
                "hybrid_override_pattern": "M-*"})"))
                .pattern(),
            "M-*");
  EXPECT_EQ(ModelOf(With(kNemotronH, R"({"layers_block_type": [
                "attention", "mamba"], "num_hidden_layers": 2})"))
                .pattern(),
            "*M");
}

TEST(HfHybridsTest, WhatNoLayerHasIsLeftOut) {
  const v1::ModelConfig model = ModelOf(
      With(kNemotronH, R"({"layers_block_type": ["linear_attention"]})"));
  EXPECT_FALSE(model.has_moe());
  EXPECT_FALSE(model.has_attention());
  EXPECT_EQ(model.ffn_hidden_size(), 0);
  EXPECT_TRUE(model.has_mamba());
}

TEST(HfHybridsTest, TimeStepsAreLimited) {
  for (const char* text : {kMamba2, kBamba, kGraniteMoeHybrid}) {
    const v1::MambaConfig mamba =
        ModelOf(With(text, R"({"time_step_limit": [0.001, 0.5],
                               "time_step_min": 0.25})"))
            .mamba();
    EXPECT_EQ(mamba.time_step_min(), 0.001);
    EXPECT_EQ(mamba.time_step_max(), 0.5);
  }
  EXPECT_EQ(ModelOf(With(kNemotronH, R"({"time_step_min": 0.25})"))
                .mamba()
                .time_step_min(),
            0.25);
}

TEST(HfHybridsTest, BiasesOfAMixer) {
  const v1::MambaConfig mamba =
      ModelOf(With(kBamba, R"({"mamba_conv_bias": false,
                               "mamba_proj_bias": true})"))
          .mamba();
  EXPECT_TRUE(mamba.no_conv_bias());
  EXPECT_TRUE(mamba.projection_bias());
}

TEST(HfHybridsTest, AHeadOfAMixerFollowsFromTheOthers) {
  EXPECT_EQ(
      ModelOf(With(kBamba, R"({"mamba_d_head": "auto", "mamba_n_heads": 4})"))
          .mamba()
          .head_dim(),
      32);
}

TEST(HfHybridsTest, ADeepseekWithoutQueryLatent) {
  EXPECT_EQ(ModelOf(WithField(kDeepseekV3, "q_lora_rank", "null"))
                .mla()
                .q_lora_rank(),
            0);
  EXPECT_TRUE(ModelOf(With(kDeepseekV3, R"({"rope_interleave": false})"))
                  .mla()
                  .rope_half_split());
}

TEST(HfHybridsTest, ADeepseekWithYarn) {
  const v1::YarnConfig yarn =
      ModelOf(With(kDeepseekV3, R"({"rope_parameters": null,
                  "rope_theta": 50000,
                  "rope_scaling": {"type": "yarn", "factor": 40,
                      "original_max_position_embeddings": 4096,
                      "beta_fast": 16, "beta_slow": 2, "mscale": 0.5,
                      "mscale_all_dim": 0.7}})"))
          .mla()
          .yarn();
  EXPECT_EQ(yarn.factor(), 40);
  EXPECT_EQ(yarn.original_positions(), 4096);
  EXPECT_EQ(yarn.beta_fast(), 16);
  EXPECT_EQ(yarn.beta_slow(), 2);
  EXPECT_EQ(yarn.mscale(), 0.5);
  EXPECT_EQ(yarn.mscale_all_dim(), 0.7);
}

// Only both together change the library's factor of cosines and sines.
TEST(HfHybridsTest, MscaleOfYarnByItselfDoesNothing) {
  const v1::YarnConfig yarn =
      ModelOf(With(kDeepseekV3, R"({"rope_parameters": {"rope_type": "yarn",
                  "factor": 4, "original_max_position_embeddings": 32,
                  "mscale": 0.5}})"))
          .mla()
          .yarn();
  EXPECT_EQ(yarn.mscale(), 1);
  EXPECT_EQ(yarn.mscale_all_dim(), 0);
}

TEST(HfHybridsTest, SharedExpertsOfDeepseekAreOneWideOne) {
  EXPECT_EQ(ModelOf(With(kDeepseekV3, R"({"n_shared_experts": 2})"))
                .moe()
                .shared_expert_hidden_size(),
            48);
}

TEST(HfHybridsTest, ADeepseekOfDenseLayersHasNoExperts) {
  const v1::ModelConfig model =
      ModelOf(With(kDeepseekV3, R"({"first_k_dense_replace": 9})"));
  EXPECT_EQ(model.pattern(), "[+-][+-][+-]");
  EXPECT_FALSE(model.has_moe());
}

TEST(HfHybridsTest, ExpertsOfANemotronMayBeGelu) {
  EXPECT_EQ(ModelOf(With(kNemotronH, R"({"mlp_hidden_act": "gelu"})"))
                .mlp_activation(),
            v1::MLP_ACTIVATION_GELU);
}

}  // namespace
}  // namespace weft::checkpoint

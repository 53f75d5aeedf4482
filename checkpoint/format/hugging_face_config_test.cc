#include "checkpoint/format/hugging_face_config.h"

#include <string>
#include <vector>

#include "base/status_matchers.h"
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

TEST(HfConfigTest, ALlama) {
  ExpectModel(kLlama, HfFamily::kLlama,
              R"(vocab_size: 160 hidden_size: 64 num_layers: 3
                 attention { num_heads: 4 num_kv_heads: 2 head_dim: 16
                             rope_theta: 10000 }
                 ffn_hidden_size: 128 norm_epsilon: 1e-6)");
}

TEST(HfConfigTest, AMixtral) {
  ExpectModel(kMixtral, HfFamily::kMixtral,
              R"(vocab_size: 160 hidden_size: 64 num_layers: 3
                 attention { num_heads: 4 num_kv_heads: 2 head_dim: 16
                             rope_theta: 1000000 }
                 moe { num_experts: 8 top_k: 2 expert_hidden_size: 48
                       top_k_normalization: TOP_K_NORMALIZATION_RENORMALIZED }
                 norm_epsilon: 1e-5)");
}

TEST(HfConfigTest, AQwen2Moe) {
  ExpectModel(kQwen2Moe, HfFamily::kQwen2Moe,
              R"(vocab_size: 160 hidden_size: 64 num_layers: 3
                 attention { num_heads: 4 num_kv_heads: 4 head_dim: 16
                             rope_theta: 10000 qkv_bias: true }
                 moe { num_experts: 6 top_k: 3 expert_hidden_size: 24
                       shared_expert_hidden_size: 40 shared_expert_gate: true
                       top_k_normalization: TOP_K_NORMALIZATION_RAW }
                 norm_epsilon: 1e-6)");
}

TEST(HfConfigTest, AQwen3Moe) {
  ExpectModel(kQwen3Moe, HfFamily::kQwen3Moe,
              R"(vocab_size: 160 hidden_size: 64 num_layers: 3
                 attention { num_heads: 4 num_kv_heads: 2 head_dim: 32
                             rope_theta: 10000 qk_norm: true }
                 moe { num_experts: 8 top_k: 4 expert_hidden_size: 24
                       top_k_normalization: TOP_K_NORMALIZATION_RENORMALIZED }
                 norm_epsilon: 1e-6)");
}

TEST(HfConfigTest, WithoutFieldsALlamaIsItsFamilysDefault) {
  ExpectModel(R"({"model_type": "llama"})", HfFamily::kLlama,
              R"(vocab_size: 32000 hidden_size: 4096 num_layers: 32
                 attention { num_heads: 32 num_kv_heads: 32 head_dim: 128
                             rope_theta: 10000 }
                 ffn_hidden_size: 11008 norm_epsilon: 1e-6)");
}

TEST(HfConfigTest, WithoutFieldsAMixtralIsItsFamilysDefault) {
  ExpectModel(R"({"model_type": "mixtral"})", HfFamily::kMixtral,
              R"(vocab_size: 32000 hidden_size: 4096 num_layers: 32
                 attention { num_heads: 32 num_kv_heads: 8 head_dim: 128
                             rope_theta: 1000000 }
                 moe { num_experts: 8 top_k: 2 expert_hidden_size: 14336
                       top_k_normalization: TOP_K_NORMALIZATION_RENORMALIZED }
                 norm_epsilon: 1e-5)");
}

TEST(HfConfigTest, WithoutFieldsAQwen2MoeIsItsFamilysDefault) {
  ExpectModel(R"({"model_type": "qwen2_moe"})", HfFamily::kQwen2Moe,
              R"(vocab_size: 151936 hidden_size: 2048 num_layers: 24
                 attention { num_heads: 16 num_kv_heads: 16 head_dim: 128
                             rope_theta: 10000 qkv_bias: true }
                 moe { num_experts: 60 top_k: 4 expert_hidden_size: 1408
                       shared_expert_hidden_size: 5632 shared_expert_gate: true
                       top_k_normalization: TOP_K_NORMALIZATION_RAW }
                 norm_epsilon: 1e-6)");
}

TEST(HfConfigTest, WithoutFieldsAQwen3MoeIsItsFamilysDefault) {
  ExpectModel(R"({"model_type": "qwen3_moe"})", HfFamily::kQwen3Moe,
              R"(vocab_size: 151936 hidden_size: 2048 num_layers: 24
                 attention { num_heads: 32 num_kv_heads: 4 head_dim: 64
                             rope_theta: 10000 qk_norm: true }
                 moe { num_experts: 128 top_k: 8 expert_hidden_size: 768
                       top_k_normalization: TOP_K_NORMALIZATION_RAW }
                 norm_epsilon: 1e-6)");
}

TEST(HfConfigTest, BiasesAreThoseOfTheFamily) {
  for (const char* text : {kLlama, kQwen3Moe}) {
    const auto attention =
        ModelOf(With(text, R"({"attention_bias": true})")).attention();
    EXPECT_TRUE(attention.qkv_bias());
    EXPECT_TRUE(attention.output_bias());
  }
  EXPECT_TRUE(
      ModelOf(With(kQwen2Moe, R"({"qkv_bias": null})")).attention().qkv_bias());
  EXPECT_FALSE(ModelOf(With(kQwen2Moe, R"({"qkv_bias": false})"))
                   .attention()
                   .qkv_bias());
}

TEST(HfConfigTest, TiedEmbeddings) {
  EXPECT_TRUE(ModelOf(With(kQwen3Moe, R"({"tie_word_embeddings": true})"))
                  .tie_embeddings());
}

TEST(HfConfigTest, HeadsThatAreNullFollowFromOthers) {
  for (const char* text : {kLlama, kMixtral}) {
    const std::string changed = WithField(text, "num_key_value_heads", "null");
    EXPECT_EQ(ModelOf(changed).attention().num_kv_heads(), 4);
  }
  EXPECT_EQ(
      ModelOf(WithField(kQwen3Moe, "head_dim", "null")).attention().head_dim(),
      16);
}

TEST(HfConfigTest, RopeThetaHasOlderPlaces) {
  const std::vector<std::string> patches = {
      R"({"rope_parameters": null, "rope_theta": 5000000})",
      R"({"rope_parameters": null, "rope_theta": 5e6, "rope_scaling": {}})",
      R"({"rope_parameters": {"rope_theta": 5000000.0}})",
      R"({"rope_parameters": {"rope_theta": 5e6}, "rope_theta": 5e6})",
      R"({"rope_parameters": null,
          "rope_scaling": {"type": "default", "rope_theta": 5e6}})",
      R"({"rope_parameters": {"rope_theta": 5e6, "partial_rotary_factor": 1}})",
  };
  for (const std::string& patch : patches) {
    EXPECT_EQ(ModelOf(With(kQwen3Moe, patch)).attention().rope_theta(), 5e6)
        << patch;
  }
}

TEST(HfConfigTest, TheNumberOfExpertsHasTwoNames) {
  for (const char* patch :
       {R"({"num_experts": 16, "num_local_experts": null})",
        R"({"num_experts": null, "num_local_experts": 16})",
        R"({"num_experts": 16, "num_local_experts": 16})"}) {
    for (const char* text : {kMixtral, kQwen2Moe, kQwen3Moe}) {
      EXPECT_EQ(ModelOf(With(text, patch)).moe().num_experts(), 16) << patch;
    }
  }
}

TEST(HfConfigTest, SomeLayersAreDense) {
  const v1::ModelConfig model = ModelOf(
      With(kQwen3Moe, R"({"num_hidden_layers": 6, "decoder_sparse_step": 2,
                     "mlp_only_layers": [5, 1]})"));
  EXPECT_THAT(model.dense_layers(), ::testing::ElementsAre(0, 1, 2, 4, 5));
  EXPECT_EQ(model.ffn_hidden_size(), 96);
  EXPECT_EQ(model.moe().num_experts(), 8);
}

TEST(HfConfigTest, WhereEveryLayerIsDenseThereAreNoExperts) {
  const v1::ModelConfig model =
      ModelOf(With(kQwen3Moe, R"({"decoder_sparse_step": 4})"));
  EXPECT_FALSE(model.has_moe());
  EXPECT_EQ(model.dense_layers_size(), 0);
  EXPECT_EQ(model.ffn_hidden_size(), 96);
}

TEST(HfConfigTest, ALossOfTheRouterMayHaveNoWeight) {
  EXPECT_OK(ParseHfConfig(
      With(kMixtral,
           R"({"output_router_logits": true, "router_aux_loss_coef": 0})")));
}

TEST(HfConfigTest, FieldsWithoutEffectMayHaveAnyValue) {
  for (const char* name :
       {"_name_or_path", "bos_token_id", "dtype", "eos_token_id", "id2label",
        "initializer_range", "label2id", "max_position_embeddings",
        "max_window_layers", "output_attentions", "output_hidden_states",
        "num_nextn_predict_layers", "pretraining_tp", "problem_type",
        "return_dict", "torch_dtype", "transformers_version", "use_cache"}) {
    for (const char* value : {"7", "null", "[1]", R"({"__float__": "NaN"})"}) {
      EXPECT_OK(ParseHfConfig(WithField(kQwen2Moe, name, value)))
          << name << "=" << value;
    }
  }
}

}  // namespace
}  // namespace weft::checkpoint

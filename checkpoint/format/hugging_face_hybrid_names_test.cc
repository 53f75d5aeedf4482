// Names of parameters of DeepSeek-V3 and of the families with Mamba-2.
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_matchers.h"
#include "checkpoint/format/hugging_face_hybrid_texts.h"
#include "checkpoint/format/hugging_face_names.h"
#include "checkpoint/format/hugging_face_texts.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::checkpoint {
namespace {

using ::testing::HasSubstr;

// Of one parameter: its tensors, as "name [shape] + name [shape]".
std::string TensorsOf(const std::string& text, const std::string& name,
                      const std::vector<int64_t>& shape) {
  const auto config = ParseHfConfig(text);
  EXPECT_OK(config);
  if (!config.ok()) return "";
  model::ParamDecl param;
  param.name = name;
  param.shape = shape;
  const auto tensors = HfTensorsOf(config->family, config->model, param);
  if (!tensors.ok()) return std::string(tensors.status().message());
  std::vector<std::string> texts;
  int64_t elements = 1;
  for (int64_t dimension : shape) elements *= dimension;
  for (const TensorSlice& tensor : *tensors) {
    texts.push_back(
        absl::StrCat(tensor.name, " [", absl::StrJoin(tensor.shape, ","), "]"));
    elements -= tensor.elements;
  }
  EXPECT_EQ(elements, 0) << name;
  return absl::StrJoin(texts, " + ");
}

struct Named {
  const char* what;
  const char* text;
  const char* param;
  std::vector<int64_t> shape;
  const char* tensors;
};

class NamedParam : public ::testing::TestWithParam<Named> {};

TEST_P(NamedParam, HasTheseTensors) {
  const Named& named = GetParam();
  EXPECT_EQ(TensorsOf(named.text, named.param, named.shape), named.tensors);
}

INSTANTIATE_TEST_SUITE_P(
    Deepseek, NamedParam,
    ::testing::Values(
        Named{"Norm2",
              kDeepseekV3,
              "layers.2.norm2",
              {64},
              "model.layers.2.post_attention_layernorm.weight [64]"},
        Named{"QueryDown",
              kDeepseekV3,
              "layers.0.q_down",
              {48, 64},
              "model.layers.0.self_attn.q_a_proj.weight [48,64]"},
        Named{"QueryNorm",
              kDeepseekV3,
              "layers.0.q_norm",
              {48},
              "model.layers.0.self_attn.q_a_layernorm.weight [48]"},
        Named{"QueryUp",
              kDeepseekV3,
              "layers.0.q_up",
              {160, 48},
              "model.layers.0.self_attn.q_b_proj.weight [160,48]"},
        Named{"Query",
              kDeepseekV3,
              "layers.0.q_proj",
              {160, 64},
              "model.layers.0.self_attn.q_proj.weight [160,64]"},
        Named{"LatentDown",
              kDeepseekV3,
              "layers.1.kv_down",
              {48, 64},
              "model.layers.1.self_attn.kv_a_proj_with_mqa.weight [48,64]"},
        Named{"LatentNorm",
              kDeepseekV3,
              "layers.1.kv_norm",
              {32},
              "model.layers.1.self_attn.kv_a_layernorm.weight [32]"},
        Named{"LatentUp",
              kDeepseekV3,
              "layers.1.kv_up",
              {176, 32},
              "model.layers.1.self_attn.kv_b_proj.weight [176,32]"},
        Named{"Out",
              kDeepseekV3,
              "layers.1.out",
              {64, 80},
              "model.layers.1.self_attn.o_proj.weight [64,80]"},
        Named{"Shared",
              kDeepseekV3,
              "layers.1.shared_gate_up",
              {48, 64},
              "model.layers.1.mlp.shared_experts.gate_proj.weight [24,64] + "
              "model.layers.1.mlp.shared_experts.up_proj.weight [24,64]"},
        Named{"Bias",
              kDeepseekV3,
              "layers.1.expert_bias",
              {8},
              "model.layers.1.mlp.gate.e_score_correction_bias [8]"},
        Named{"Dense",
              kDeepseekV3,
              "layers.0.mlp.down",
              {64, 112},
              "model.layers.0.mlp.down_proj.weight [64,112]"}),
    [](const auto& info) { return info.param.what; });

INSTANTIATE_TEST_SUITE_P(
    Mixers, NamedParam,
    ::testing::Values(Named{"Table",
                            kMamba2,
                            "embedding.table",
                            {160, 64},
                            "backbone.embeddings.weight [160,64]"},
                      Named{"HeadNorm",
                            kMamba2,
                            "head.norm",
                            {64},
                            "backbone.norm_f.weight [64]"},
                      Named{"Norm",
                            kMamba2,
                            "layers.1.norm",
                            {64},
                            "backbone.layers.1.norm.weight [64]"},
                      Named{"InProjection",
                            kMamba2,
                            "layers.1.in_proj",
                            {296, 64},
                            "backbone.layers.1.mixer.in_proj.weight [296,64]"},
                      Named{"Convolution",
                            kMamba2,
                            "layers.1.conv_weight",
                            {160, 1, 4},
                            "backbone.layers.1.mixer.conv1d.weight [160,1,4]"},
                      Named{"ConvolutionBias",
                            kMamba2,
                            "layers.1.conv_bias",
                            {160},
                            "backbone.layers.1.mixer.conv1d.bias [160]"},
                      Named{"TimeSteps",
                            kMamba2,
                            "layers.1.dt_bias",
                            {8},
                            "backbone.layers.1.mixer.dt_bias [8]"},
                      Named{"Decay",
                            kMamba2,
                            "layers.1.A_log",
                            {8},
                            "backbone.layers.1.mixer.A_log [8]"},
                      Named{"Skip",
                            kMamba2,
                            "layers.1.D",
                            {8},
                            "backbone.layers.1.mixer.D [8]"},
                      Named{"GatedNorm",
                            kMamba2,
                            "layers.1.gated_norm",
                            {128},
                            "backbone.layers.1.mixer.norm.weight [128]"},
                      Named{"OutProjection",
                            kMamba2,
                            "layers.1.out_proj",
                            {64, 128},
                            "backbone.layers.1.mixer.out_proj.weight [64,128]"},
                      Named{"GroupsCount",
                            kNemotronH,
                            "layers.0.in_proj",
                            {328, 64},
                            "backbone.layers.0.mixer.in_proj.weight [328,64]"},
                      Named{"BambaMixer",
                            kBamba,
                            "layers.2.dt_bias",
                            {8},
                            "model.layers.2.mamba.dt_bias [8]"},
                      Named{"BambaGatedNorm",
                            kBamba,
                            "layers.2.gated_norm",
                            {128},
                            "model.layers.2.mamba.norm.weight [128]"},
                      Named{"GraniteMixer",
                            kGraniteMoeHybrid,
                            "layers.2.conv_weight",
                            {160, 1, 4},
                            "model.layers.2.mamba.conv1d.weight [160,1,4]"}),
    [](const auto& info) { return info.param.what; });

INSTANTIATE_TEST_SUITE_P(
    Hybrids, NamedParam,
    ::testing::Values(
        Named{"BambaHeadNorm",
              kBamba,
              "head.norm",
              {64},
              "model.final_layernorm.weight [64]"},
        Named{"BambaNorm",
              kBamba,
              "layers.0.norm",
              {64},
              "model.layers.0.input_layernorm.weight [64]"},
        Named{"BambaNorm2",
              kBamba,
              "layers.0.norm2",
              {64},
              "model.layers.0.pre_ff_layernorm.weight [64]"},
        Named{"BambaAttention",
              kBamba,
              "layers.1.out",
              {64, 64},
              "model.layers.1.self_attn.o_proj.weight [64,64]"},
        Named{"BambaDense",
              kBamba,
              "layers.1.mlp.gate_up",
              {192, 64},
              "model.layers.1.feed_forward.gate_proj.weight [96,64] + "
              "model.layers.1.feed_forward.up_proj.weight [96,64]"},
        Named{"GraniteRouter",
              kGraniteMoeHybrid,
              "layers.0.router",
              {8, 64},
              "model.layers.0.block_sparse_moe.router.layer.weight [8,64]"},
        Named{"GraniteUp",
              kGraniteMoeHybrid,
              "layers.0.experts.gate_up",
              {8, 64, 64},
              "model.layers.0.block_sparse_moe.input_linear.weight [8,64,64]"},
        Named{"GraniteDown",
              kGraniteMoeHybrid,
              "layers.0.experts.down",
              {8, 64, 32},
              "model.layers.0.block_sparse_moe.output_linear.weight "
              "[8,64,32]"},
        Named{"GraniteShared",
              kGraniteMoeHybrid,
              "layers.0.shared_gate_up",
              {96, 64},
              "model.layers.0.shared_mlp.input_linear.weight [96,64]"},
        Named{"NemotronNorm",
              kNemotronH,
              "layers.1.norm2",
              {64},
              "backbone.layers.1.norm.weight [64]"},
        Named{"NemotronAttention",
              kNemotronH,
              "layers.2.qkv",
              {128, 64},
              "backbone.layers.2.mixer.q_proj.weight [64,64] + "
              "backbone.layers.2.mixer.k_proj.weight [32,64] + "
              "backbone.layers.2.mixer.v_proj.weight [32,64]"},
        Named{"NemotronDense",
              kNemotronH,
              "layers.3.mlp.up",
              {96, 64},
              "backbone.layers.3.mixer.up_proj.weight [96,64]"},
        Named{"NemotronBias",
              kNemotronH,
              "layers.1.expert_bias",
              {8},
              "backbone.layers.1.mixer.gate.e_score_correction_bias [8]"},
        Named{"NemotronShared",
              kNemotronH,
              "layers.1.shared_down",
              {64, 40},
              "backbone.layers.1.mixer.shared_experts.down_proj.weight "
              "[64,40]"}),
    [](const auto& info) { return info.param.what; });

TEST(HfHybridNamesTest, ExpertsOfNemotronHaveOneFirstProjection) {
  EXPECT_THAT(
      TensorsOf(kNemotronH, "layers.5.experts.up", {8, 24, 64}),
      AllOf(HasSubstr(
                "backbone.layers.5.mixer.experts.0.up_proj.weight [24,64] + "),
            HasSubstr(
                "backbone.layers.5.mixer.experts.7.up_proj.weight [24,64]")));
}

TEST(HfHybridNamesTest, AGraniteWithoutExpertsIsDense) {
  EXPECT_EQ(TensorsOf(With(kGraniteMoeHybrid, R"({"num_local_experts": 0})"),
                      "layers.0.mlp.gate_up", {96, 64}),
            "model.layers.0.shared_mlp.input_linear.weight [96,64]");
}

TEST(HfHybridNamesTest, AGroupIsOneLayer) {
  EXPECT_THAT(TensorsOf(kBamba, "layers.3.norm", {64}),
              HasSubstr("has no name in a bamba checkpoint of 3 layers"));
  EXPECT_THAT(TensorsOf(kNemotronH, "layers.6.norm1", {64}),
              HasSubstr("has no name in a nemotron_h checkpoint of 6 layers"));
}

TEST(HfHybridNamesTest, AParameterOfAnotherFamilyIsRefused) {
  EXPECT_THAT(TensorsOf(kMamba2, "layers.0.qkv", {128, 64}),
              HasSubstr("\"layers.0.qkv\" has no name in a mamba2 checkpoint "
                        "of 2 layers"));
  EXPECT_THAT(TensorsOf(kMamba2, "layers.0.in_proj", {300, 64}),
              HasSubstr("config.json makes it [296, 64], beginning with "
                        "\"backbone.layers.0.mixer.in_proj.weight\""));
}

}  // namespace
}  // namespace weft::checkpoint

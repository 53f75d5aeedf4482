#include "checkpoint/format/hugging_face_names.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/decoder.h"
#include "model/shape.h"

namespace weft::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

model::ModelDecl Declare(const v1::ModelConfig& config) {
  v1::TrainingJob job;
  *job.mutable_model() = config;
  job.mutable_data()->set_sequence_length(4);
  job.mutable_parallel()->set_world(1);
  job.mutable_batch()->set_global_batch(1);
  job.mutable_batch()->set_microbatch(1);
  return model::DeclareDecoder(model::ShapeOf(job));
}

// Of a small model of the family, with `more` fields.
HfConfig Config(const char* family, const char* more) {
  const auto config = ParseHfConfig(absl::StrCat(
      R"({"vocab_size": 7, "hidden_size": 4, "intermediate_size": 6,
          "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 2,
          "num_hidden_layers": 2, "model_type": ")",
      family, "\"", more, "}"));
  EXPECT_OK(config);
  return config.ok() ? *config : HfConfig();
}

std::string Text(const TensorSlice& tensor) {
  return absl::StrCat(tensor.name, " [", absl::StrJoin(tensor.shape, ","), "]");
}

// "parameter: tensor [shape] + tensor [shape]" of the embedding, of layer
// `layer` and of the head.
std::vector<std::string> TensorsOf(const HfConfig& config, int layer) {
  const std::string skipped = absl::StrCat("layers.", 1 - layer, ".");
  std::vector<std::string> lines;
  for (const model::ParamDecl& param : Declare(config.model).params) {
    if (param.name.rfind(skipped, 0) == 0) continue;
    const auto tensors = HfTensorsOf(config.family, config.model, param);
    EXPECT_OK(tensors);
    if (!tensors.ok()) continue;
    int64_t elements = 0;
    std::vector<std::string> texts;
    for (const TensorSlice& tensor : *tensors) {
      elements += tensor.elements;
      texts.push_back(Text(tensor));
    }
    EXPECT_EQ(elements, param.local_elements()) << param.name;
    lines.push_back(
        absl::StrCat(param.name, ": ", absl::StrJoin(texts, " + ")));
  }
  return lines;
}

TEST(HfTensorsTest, OfALlamaWithBiases) {
  EXPECT_THAT(
      TensorsOf(Config("llama", R"(, "attention_bias": true)"), 1),
      ElementsAre(
          "embedding.table: model.embed_tokens.weight [7,4]",
          "layers.1.norm1: model.layers.1.input_layernorm.weight [4]",
          "layers.1.qkv: model.layers.1.self_attn.q_proj.weight [8,4] + "
          "model.layers.1.self_attn.k_proj.weight [4,4] + "
          "model.layers.1.self_attn.v_proj.weight [4,4]",
          "layers.1.out: model.layers.1.self_attn.o_proj.weight [4,8]",
          "layers.1.qkv_bias: model.layers.1.self_attn.q_proj.bias [8] + "
          "model.layers.1.self_attn.k_proj.bias [4] + "
          "model.layers.1.self_attn.v_proj.bias [4]",
          "layers.1.out_bias: model.layers.1.self_attn.o_proj.bias [4]",
          "layers.1.norm2: model.layers.1.post_attention_layernorm.weight [4]",
          "layers.1.mlp.gate_up: model.layers.1.mlp.gate_proj.weight [6,4] + "
          "model.layers.1.mlp.up_proj.weight [6,4]",
          "layers.1.mlp.down: model.layers.1.mlp.down_proj.weight [4,6]",
          "head.norm: model.norm.weight [4]",
          "head.output: lm_head.weight [7,4]"));
}

TEST(HfTensorsTest, OfATiedMixtral) {
  const std::string moe = "model.layers.0.block_sparse_moe.";
  EXPECT_THAT(
      TensorsOf(Config("mixtral", R"(, "num_local_experts": 2,
                                       "tie_word_embeddings": true)"),
                0),
      ElementsAre(
          "embedding.table: model.embed_tokens.weight [7,4]",
          "layers.0.norm1: model.layers.0.input_layernorm.weight [4]",
          "layers.0.qkv: model.layers.0.self_attn.q_proj.weight [8,4] + "
          "model.layers.0.self_attn.k_proj.weight [4,4] + "
          "model.layers.0.self_attn.v_proj.weight [4,4]",
          "layers.0.out: model.layers.0.self_attn.o_proj.weight [4,8]",
          "layers.0.norm2: model.layers.0.post_attention_layernorm.weight [4]",
          absl::StrCat("layers.0.router: ", moe, "gate.weight [2,4]"),
          absl::StrCat(
              "layers.0.experts.gate_up: ", moe, "experts.0.w1.weight [6,4] + ",
              moe, "experts.0.w3.weight [6,4] + ", moe,
              "experts.1.w1.weight [6,4] + ", moe, "experts.1.w3.weight [6,4]"),
          absl::StrCat("layers.0.experts.down: ", moe,
                       "experts.0.w2.weight [4,6] + ", moe,
                       "experts.1.w2.weight [4,6]"),
          "head.norm: model.norm.weight [4]"));
}

TEST(HfTensorsTest, OfAQwen2Moe) {
  const std::string mlp = "model.layers.0.mlp.";
  EXPECT_THAT(
      TensorsOf(Config("qwen2_moe",
                       R"(, "num_experts": 2, "num_experts_per_tok": 1,
                          "moe_intermediate_size": 3,
                          "shared_expert_intermediate_size": 5)"),
                0),
      AllOf(
          ::testing::Contains(
              "layers.0.qkv_bias: model.layers.0.self_attn.q_proj.bias [8] + "
              "model.layers.0.self_attn.k_proj.bias [4] + "
              "model.layers.0.self_attn.v_proj.bias [4]"),
          ::testing::Contains(
              absl::StrCat("layers.0.router: ", mlp, "gate.weight [2,4]")),
          ::testing::Contains(
              absl::StrCat("layers.0.shared_gate_up: ", mlp,
                           "shared_expert.gate_proj.weight [5,4] + ", mlp,
                           "shared_expert.up_proj.weight [5,4]")),
          ::testing::Contains(
              absl::StrCat("layers.0.shared_down: ", mlp,
                           "shared_expert.down_proj.weight [4,5]")),
          ::testing::Contains(absl::StrCat("layers.0.shared_gate: ", mlp,
                                           "shared_expert_gate.weight [1,4]")),
          ::testing::Contains(
              absl::StrCat("layers.0.experts.gate_up: ", mlp,
                           "experts.0.gate_proj.weight [3,4] + ", mlp,
                           "experts.0.up_proj.weight [3,4] + ", mlp,
                           "experts.1.gate_proj.weight [3,4] + ", mlp,
                           "experts.1.up_proj.weight [3,4]")),
          ::testing::Contains(
              absl::StrCat("layers.0.experts.down: ", mlp,
                           "experts.0.down_proj.weight [4,3] + ", mlp,
                           "experts.1.down_proj.weight [4,3]")),
          ::testing::SizeIs(14)));
}

TEST(HfTensorsTest, OfAQwen3MoeWithADenseLayer) {
  const HfConfig config =
      Config("qwen3_moe",
             R"(, "num_experts": 2, "num_experts_per_tok": 1,
                "moe_intermediate_size": 3, "mlp_only_layers": [0])");
  EXPECT_THAT(
      TensorsOf(config, 0),
      AllOf(::testing::Contains(
                "layers.0.q_norm: model.layers.0.self_attn.q_norm.weight [2]"),
            ::testing::Contains(
                "layers.0.k_norm: model.layers.0.self_attn.k_norm.weight [2]"),
            ::testing::Contains(
                "layers.0.mlp.down: model.layers.0.mlp.down_proj.weight "
                "[4,6]"),
            ::testing::SizeIs(11)));
  EXPECT_THAT(
      TensorsOf(config, 1),
      AllOf(::testing::Contains(
                "layers.1.router: model.layers.1.mlp.gate.weight [2,4]"),
            ::testing::Contains(
                "layers.1.experts.down: "
                "model.layers.1.mlp.experts.0.down_proj.weight [4,3] + "
                "model.layers.1.mlp.experts.1.down_proj.weight [4,3]"),
            ::testing::SizeIs(12)));
}

struct Refused {
  const char* what;
  const char* param;
  std::vector<int64_t> shape;
  const char* message;
};

class RefusedParam : public ::testing::TestWithParam<Refused> {};

TEST_P(RefusedParam, IsNamed) {
  const HfConfig config = Config("llama", "");
  model::ParamDecl param;
  param.name = GetParam().param;
  param.shape = GetParam().shape;
  EXPECT_THAT(HfTensorsOf(config.family, config.model, param),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr(absl::StrCat("\"", param.name, "\"")),
                             HasSubstr(GetParam().message))));
}

INSTANTIATE_TEST_SUITE_P(
    HfTensorsTest, RefusedParam,
    ::testing::Values(
        Refused{"Unknown", "layers.0.sinks", {4}, "has no name in a llama"},
        Refused{"Outside", "head.bias", {4}, "has no name in a llama"},
        Refused{"LayerBeyond", "layers.2.norm1", {4}, "of 2 layers"},
        Refused{"NegativeLayer", "layers.-1.norm1", {4}, "has no name"},
        Refused{"NoLayer", "layers.x.norm1", {4}, "has no name"},
        Refused{"LayerItself", "layers.0", {4}, "has no name"},
        Refused{"OtherSize",
                "layers.0.qkv",
                {12, 4},
                "has shape [12, 4]; config.json makes it [16, 4], beginning "
                "with \"model.layers.0.self_attn.q_proj.weight\""},
        Refused{"OtherRank", "head.norm", {4, 1}, "config.json makes it [4]"},
        Refused{"NoExperts",
                "layers.0.experts.down",
                {2, 4, 3},
                "has no name in a llama"}),
    [](const auto& info) { return info.param.what; });

}  // namespace
}  // namespace weft::checkpoint

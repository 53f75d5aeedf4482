#include "checkpoint/format/megatron_names.h"

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

namespace weft::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Two layers, the first dense; four heads of width 2 in two groups.
model::Shape MakeShape(
    v1::MlpActivation activation = v1::MLP_ACTIVATION_SWIGLU) {
  v1::TrainingJob job;
  v1::ModelConfig& model = *job.mutable_model();
  model.set_mlp_activation(activation);
  model.set_vocab_size(7);
  model.set_hidden_size(4);
  model.set_num_layers(2);
  model.add_dense_layers(0);
  model.set_ffn_hidden_size(6);
  v1::AttentionConfig& attention = *model.mutable_attention();
  attention.set_num_heads(4);
  attention.set_num_kv_heads(2);
  attention.set_head_dim(2);
  attention.set_qkv_bias(true);
  attention.set_output_bias(true);
  attention.set_qk_norm(true);
  v1::MoeConfig& moe = *model.mutable_moe();
  moe.set_num_experts(2);
  moe.set_top_k(1);
  moe.set_expert_hidden_size(3);
  moe.set_shared_expert_hidden_size(5);
  moe.set_shared_expert_gate(true);
  job.mutable_data()->set_sequence_length(4);
  job.mutable_parallel()->set_world(1);
  job.mutable_batch()->set_global_batch(1);
  job.mutable_batch()->set_microbatch(1);
  return model::ShapeOf(job);
}

// "name [shape]" of a whole tensor, or "name [shape] begin+elements".
std::string Text(const TensorSlice& slice) {
  std::string text =
      absl::StrCat(slice.name, " [", absl::StrJoin(slice.shape, ","), "]");
  const TensorSlice whole = WholeTensor(slice.name, slice.shape);
  if (slice.elements != whole.elements) {
    absl::StrAppend(&text, " ", slice.begin, "+", slice.elements);
  }
  return text;
}

// A line for each parameter whose name begins with `prefix`.
std::vector<std::string> SlicesOf(
    const std::string& prefix,
    v1::MlpActivation activation = v1::MLP_ACTIVATION_SWIGLU) {
  const model::Shape shape = MakeShape(activation);
  std::vector<std::string> lines;
  for (const model::ParamDecl& param : model::DeclareDecoder(shape).params) {
    const auto slices = MegatronTensorsOf(shape, param);
    EXPECT_OK(slices);
    if (!slices.ok()) continue;
    int64_t elements = 0;
    std::vector<std::string> texts;
    for (const TensorSlice& slice : *slices) {
      elements += slice.elements;
      texts.push_back(Text(slice));
    }
    EXPECT_EQ(elements, param.local_elements()) << param.name;
    if (param.name.rfind(prefix, 0) != 0) continue;
    lines.push_back(
        absl::StrCat(param.name, ": ", absl::StrJoin(texts, " | ")));
  }
  return lines;
}

TEST(MegatronTensorsTest, OutsideLayers) {
  EXPECT_THAT(SlicesOf("embedding"),
              ElementsAre("embedding.table: embedding.word_embeddings.weight "
                          "[7,4]"));
  EXPECT_THAT(SlicesOf("head"),
              ElementsAre("head.norm: decoder.final_layernorm.weight [4]",
                          "head.output: output_layer.weight [7,4]"));
}

TEST(MegatronTensorsTest, WithoutGroupsTheLastNormHasAnotherName) {
  model::Shape shape = MakeShape();
  model::ParamDecl norm;
  norm.name = "head.norm";
  norm.shape = {4};
  shape.layers = {{model::BlockKind::kAttention}, {model::BlockKind::kExperts}};
  shape.has_groups = false;
  ASSERT_OK_AND_ASSIGN(auto slices, MegatronTensorsOf(shape, norm));
  EXPECT_EQ(slices[0].name, "decoder.final_norm.weight");
  // A group may be of one symbol, as in "[*][E]".
  shape.has_groups = true;
  ASSERT_OK_AND_ASSIGN(slices, MegatronTensorsOf(shape, norm));
  EXPECT_EQ(slices[0].name, "decoder.final_layernorm.weight");
}

// A group of the 16 rows is 2 query heads, a key head and a value head of 2
// rows each: 8 rows of 4 elements.
TEST(MegatronTensorsTest, ADenseLayerWithGroupedHeads) {
  const std::string layer = "decoder.layers.0.";
  const std::string qkv = layer + "self_attention.linear_qkv.weight [16,4] ";
  const std::string bias = layer + "self_attention.linear_qkv.bias [16] ";
  EXPECT_THAT(
      SlicesOf("layers.0."),
      ElementsAre(
          absl::StrCat("layers.0.norm1: ", layer, "input_layernorm.weight [4]"),
          absl::StrCat("layers.0.qkv: ", qkv, "0+16 | ", qkv, "32+16 | ", qkv,
                       "16+8 | ", qkv, "48+8 | ", qkv, "24+8 | ", qkv, "56+8"),
          absl::StrCat("layers.0.out: ", layer,
                       "self_attention.linear_proj.weight [4,8]"),
          absl::StrCat("layers.0.qkv_bias: ", bias, "0+4 | ", bias, "8+4 | ",
                       bias, "4+2 | ", bias, "12+2 | ", bias, "6+2 | ", bias,
                       "14+2"),
          absl::StrCat("layers.0.out_bias: ", layer,
                       "self_attention.linear_proj.bias [4]"),
          absl::StrCat("layers.0.q_norm: ", layer,
                       "self_attention.q_layernorm.weight [2]"),
          absl::StrCat("layers.0.k_norm: ", layer,
                       "self_attention.k_layernorm.weight [2]"),
          absl::StrCat("layers.0.norm2: ", layer,
                       "pre_mlp_layernorm.weight [4]"),
          absl::StrCat("layers.0.mlp.gate_up: ", layer,
                       "mlp.linear_fc1.weight [12,4]"),
          absl::StrCat("layers.0.mlp.down: ", layer,
                       "mlp.linear_fc2.weight [4,6]")));
}

TEST(MegatronTensorsTest, ALayerWithExperts) {
  const std::string mlp = "decoder.layers.1.mlp.";
  const std::string experts = mlp + "experts.local_experts.";
  EXPECT_THAT(
      SlicesOf("layers.1."),
      ::testing::IsSupersetOf(
          {absl::StrCat("layers.1.router: ", mlp, "router.weight [2,4]"),
           absl::StrCat("layers.1.shared_gate_up: ", mlp,
                        "shared_experts.linear_fc1.weight [10,4]"),
           absl::StrCat("layers.1.shared_down: ", mlp,
                        "shared_experts.linear_fc2.weight [4,5]"),
           absl::StrCat("layers.1.shared_gate: ", mlp,
                        "shared_experts.gate_weight [1,4]"),
           absl::StrCat("layers.1.experts.gate_up: ", experts,
                        "0.linear_fc1.weight [6,4] | ", experts,
                        "1.linear_fc1.weight [6,4]"),
           absl::StrCat("layers.1.experts.down: ", experts,
                        "0.linear_fc2.weight [4,3] | ", experts,
                        "1.linear_fc2.weight [4,3]")}));
}

TEST(MegatronTensorsTest, WithoutGatesTheFirstProjectionIsUp) {
  const std::string mlp = "decoder.layers.1.mlp.";
  const auto activation = v1::MLP_ACTIVATION_SQUARED_RELU;
  EXPECT_THAT(
      SlicesOf("layers.0.mlp.up", activation),
      ElementsAre("layers.0.mlp.up: decoder.layers.0.mlp.linear_fc1.weight "
                  "[6,4]"));
  EXPECT_THAT(
      SlicesOf("layers.1.", activation),
      ::testing::IsSupersetOf(
          {absl::StrCat("layers.1.shared_up: ", mlp,
                        "shared_experts.linear_fc1.weight [5,4]"),
           absl::StrCat("layers.1.experts.up: ", mlp,
                        "experts.local_experts.0.linear_fc1.weight [3,4] | ",
                        mlp,
                        "experts.local_experts.1.linear_fc1.weight [3,4]")}));
}

TEST(MegatronTensorsTest, MixersAndLatentAttentionHaveNamesOfTheirOwn) {
  struct Named {
    const char* param;
    std::vector<int64_t> shape;
    const char* tensor;
  };
  for (const Named& c : {
           Named{"norm", {4}, "norm.weight [4]"},
           Named{"in_proj", {9, 4}, "mixer.in_proj.weight [9,4]"},
           Named{"conv_weight", {5, 1, 4}, "mixer.conv1d_weight [5,1,4]"},
           Named{"conv_bias", {5}, "mixer.conv1d_bias [5]"},
           Named{"dt_bias", {2}, "mixer.dt_bias [2]"},
           Named{"A_log", {2}, "mixer.A_log [2]"},
           Named{"D", {2}, "mixer.D [2]"},
           Named{"gated_norm", {3}, "mixer.norm.weight [3]"},
           Named{"out_proj", {4, 3}, "mixer.out_proj.weight [4,3]"},
           Named{"q_proj", {9, 4}, "self_attention.linear_q_proj.weight [9,4]"},
           Named{"q_down",
                 {3, 4},
                 "self_attention.linear_q_down_proj.weight [3,4]"},
           Named{"q_norm", {3}, "self_attention.q_layernorm.weight [3]"},
           Named{
               "q_up", {9, 3}, "self_attention.linear_q_up_proj.weight [9,3]"},
           Named{"kv_down",
                 {5, 4},
                 "self_attention.linear_kv_down_proj.weight [5,4]"},
           Named{"kv_norm", {3}, "self_attention.kv_layernorm.weight [3]"},
           Named{"kv_up",
                 {9, 3},
                 "self_attention.linear_kv_up_proj.weight [9,3]"},
       }) {
    model::ParamDecl param;
    param.name = absl::StrCat("layers.1.", c.param);
    param.shape = c.shape;
    ASSERT_OK_AND_ASSIGN(const auto slices,
                         MegatronTensorsOf(MakeShape(), param));
    ASSERT_EQ(slices.size(), 1);
    EXPECT_EQ(Text(slices[0]), absl::StrCat("decoder.layers.1.", c.tensor));
  }
}

TEST(MegatronTensorsTest, ADepthOfMultiTokenPrediction) {
  struct Named {
    const char* param;
    std::vector<int64_t> shape;
    const char* tensor;
  };
  for (const Named& c : {
           Named{"enorm", {4}, "enorm.weight [4]"},
           Named{"hnorm", {4}, "hnorm.weight [4]"},
           Named{"eh_proj", {4, 8}, "eh_proj.weight [4,8]"},
           Named{"final_norm", {4}, "final_layernorm.weight [4]"},
           Named{"norm1", {4}, "mtp_model_layer.input_layernorm.weight [4]"},
           Named{"router", {2, 4}, "mtp_model_layer.mlp.router.weight [2,4]"},
       }) {
    model::ParamDecl param;
    param.name = absl::StrCat("mtp.1.", c.param);
    param.shape = c.shape;
    model::Shape shape = MakeShape();
    EXPECT_FALSE(MegatronTensorsOf(shape, param).ok()) << param.name;
    shape.mtp_layers.assign(2, shape.layers.back());
    ASSERT_OK_AND_ASSIGN(const auto slices, MegatronTensorsOf(shape, param));
    EXPECT_EQ(Text(slices[0]), absl::StrCat("mtp.layers.1.", c.tensor));
  }
}

TEST(MegatronTensorsTest, AParameterThatDoesNotFitIsNamed) {
  struct Refused {
    const char* param;
    std::vector<int64_t> shape;
    const char* message;
  };
  for (const Refused& c : {
           Refused{"layers.0.sinks", {4}, "has no name in a Megatron-Core"},
           Refused{"head.bias", {4}, "has no name in a Megatron-Core"},
           Refused{"layers.2.norm1", {4}, "of 2 layers"},
           Refused{"layers.x.norm1", {4}, "has no name"},
           Refused{"layers.0", {4}, "has no name"},
           Refused{"layers.0.qkv",
                   {12, 4},
                   "has shape [12, 4], which cannot be cut into "
                   "\"decoder.layers.0.self_attention.linear_qkv.weight\""},
           Refused{"layers.1.experts.down", {3, 4, 3}, "and 2 experts"},
       }) {
    model::ParamDecl param;
    param.name = c.param;
    param.shape = c.shape;
    EXPECT_THAT(MegatronTensorsOf(MakeShape(), param),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr(absl::StrCat("\"", c.param, "\"")),
                               HasSubstr(c.message))));
  }
}

}  // namespace
}  // namespace weft::checkpoint

#include "checkpoint/megatron.h"

#include <cmath>
#include <filesystem>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/status_matchers.h"
#include "checkpoint/format/safetensors_writer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/decoder.h"

namespace weft::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Tensor {
  std::vector<int64_t> shape;
  std::vector<float> values;
};

// Values first, first + 1, ...
Tensor Counting(std::vector<int64_t> shape, float first) {
  Tensor tensor;
  tensor.values.resize(WholeTensor("", shape).elements);
  std::iota(tensor.values.begin(), tensor.values.end(), first);
  tensor.shape = std::move(shape);
  return tensor;
}

// A layer with four heads of two in two groups, and two experts.
class MegatronCheckpointTest : public ::testing::Test {
 protected:
  MegatronCheckpointTest()
      : folder_(absl::StrCat(
            ::testing::TempDir(), "/",
            ::testing::UnitTest::GetInstance()->current_test_info()->name())) {
    v1::TrainingJob job;
    v1::ModelConfig& model = *job.mutable_model();
    model.set_vocab_size(3);
    model.set_hidden_size(1);
    model.set_num_layers(1);
    model.set_tie_embeddings(true);
    model.mutable_attention()->set_num_heads(4);
    model.mutable_attention()->set_num_kv_heads(2);
    model.mutable_attention()->set_head_dim(2);
    model.mutable_moe()->set_num_experts(2);
    model.mutable_moe()->set_top_k(2);
    model.mutable_moe()->set_expert_hidden_size(1);
    job.mutable_parallel()->set_world(1);
    job.mutable_batch()->set_global_batch(1);
    job.mutable_batch()->set_microbatch(1);
    job.mutable_data()->set_sequence_length(2);
    shape_ = model::ShapeOf(job);
    decl_ = model::DeclareDecoder(shape_);
    const std::string layer = "decoder.layers.0.";
    const std::string experts = layer + "mlp.experts.local_experts.";
    tensors_ = {
        {"embedding.word_embeddings.weight", Counting({3, 1}, 0)},
        {layer + "input_layernorm.weight", Counting({1}, 10)},
        {layer + "self_attention.linear_qkv.weight", Counting({16, 1}, 100)},
        {layer + "self_attention.linear_proj.weight", Counting({1, 8}, 20)},
        {layer + "pre_mlp_layernorm.weight", Counting({1}, 30)},
        {layer + "mlp.router.weight", Counting({2, 1}, 40)},
        {experts + "0.linear_fc1.weight", Counting({2, 1}, 50)},
        {experts + "0.linear_fc2.weight", Counting({1, 1}, 60)},
        {experts + "1.linear_fc1.weight", Counting({2, 1}, 70)},
        {experts + "1.linear_fc2.weight", Counting({1, 1}, 80)},
        {"decoder.final_layernorm.weight", Counting({1}, 90)},
    };
  }

  std::unique_ptr<CheckpointTensors> Open() {
    std::filesystem::create_directories(folder_);
    SafetensorsWriter writer;
    for (const auto& [name, tensor] : tensors_) {
      EXPECT_OK(
          writer.Add(name, DType::kF32, tensor.shape, tensor.values.data()));
    }
    EXPECT_OK(writer.Write(folder_ + "/model.safetensors"));
    auto checkpoint = OpenMegatronCheckpoint(folder_, shape_);
    EXPECT_OK(checkpoint);
    return checkpoint.ok() ? *std::move(checkpoint) : nullptr;
  }

  const model::ParamDecl& Param(const std::string& name) const {
    for (const model::ParamDecl& param : decl_.params) {
      if (param.name == name) return param;
    }
    ADD_FAILURE() << "no parameter " << name;
    return decl_.params[0];
  }

  std::vector<float> Read(const CheckpointTensors& checkpoint,
                          const std::string& name) const {
    std::vector<float> values(Param(name).local_elements());
    EXPECT_OK(checkpoint.Read(Param(name), 0, absl::MakeSpan(values)));
    return values;
  }

  const std::string folder_;
  model::Shape shape_;
  model::ModelDecl decl_;
  std::map<std::string, Tensor> tensors_;
};

TEST_F(MegatronCheckpointTest, HeadsAndExpertsComeInOurOrder) {
  const auto checkpoint = Open();
  ASSERT_NE(checkpoint, nullptr);
  EXPECT_OK(checkpoint->Check(decl_));
  EXPECT_THAT(Read(*checkpoint, "layers.0.qkv"),
              ElementsAre(100, 101, 102, 103, 108, 109, 110, 111,  // queries
                          104, 105, 112, 113,                      // keys
                          106, 107, 114, 115));                    // values
  EXPECT_THAT(Read(*checkpoint, "layers.0.experts.gate_up"),
              ElementsAre(50, 51, 70, 71));
  EXPECT_THAT(Read(*checkpoint, "layers.0.experts.down"), ElementsAre(60, 80));
  EXPECT_THAT(Read(*checkpoint, "embedding.table"), ElementsAre(0, 1, 2));
}

TEST_F(MegatronCheckpointTest, TheBiasOfExpertsBelongsToTheModel) {
  constexpr char kBias[] = "decoder.layers.0.mlp.router.expert_bias";
  shape_.sigmoid_scores = true;
  shape_.expert_bias = true;
  const model::ModelDecl biased = model::DeclareDecoder(shape_);
  ASSERT_EQ(biased.expert_biases.size(), 1);
  EXPECT_THAT(Open()->Check(biased),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr(absl::StrCat("missing: ", kBias))));
  tensors_[kBias] = Counting({2}, 7);
  const auto checkpoint = Open();
  EXPECT_OK(checkpoint->Check(biased));
  EXPECT_THAT(checkpoint->Check(decl_),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr(absl::StrCat("left over: ", kBias))));
  std::vector<float> values(2);
  ASSERT_OK(checkpoint->Read(biased.expert_biases[0].AsParameter(), 0,
                             absl::MakeSpan(values)));
  EXPECT_THAT(values, ElementsAre(7, 8));
}

TEST_F(MegatronCheckpointTest, AnyPartOfASliceCanBeRead) {
  const auto checkpoint = Open();
  ASSERT_NE(checkpoint, nullptr);
  std::vector<float> part(7);
  ASSERT_OK(checkpoint->Read(Param("layers.0.qkv"), 3, absl::MakeSpan(part)));
  EXPECT_THAT(part, ElementsAre(103, 108, 109, 110, 111, 104, 105));
}

TEST_F(MegatronCheckpointTest, AWeightThatIsNotFiniteIsNamed) {
  for (const float wrong : {NAN, INFINITY}) {
    Tensor& qkv = tensors_["decoder.layers.0.self_attention.linear_qkv.weight"];
    qkv.values[8] = wrong;
    const auto checkpoint = Open();
    ASSERT_NE(checkpoint, nullptr);
    std::vector<float> part(7);
    EXPECT_THAT(
        checkpoint->Read(Param("layers.0.qkv"), 3, absl::MakeSpan(part)),
        StatusIs(absl::StatusCode::kDataLoss,
                 AllOf(HasSubstr(folder_),
                       HasSubstr("tensor decoder.layers.0.self_attention."
                                 "linear_qkv.weight [16, 1] has "),
                       HasSubstr(" as element 8; weights must be finite"))));
    EXPECT_OK(checkpoint->Read(Param("layers.0.qkv"), 0,
                               absl::MakeSpan(part).first(4)));
  }
}

TEST_F(MegatronCheckpointTest, TensorsThatDoNotFitAreNamedOnceEach) {
  tensors_.erase("decoder.layers.0.self_attention.linear_qkv.weight");
  tensors_["output_layer.weight"] = Counting({3, 1}, 0);
  tensors_["decoder.layers.0.mlp.router.weight"] = Counting({1, 2}, 0);
  const auto checkpoint = Open();
  ASSERT_NE(checkpoint, nullptr);
  EXPECT_THAT(
      checkpoint->Check(decl_),
      StatusIs(
          absl::StatusCode::kInvalidArgument,
          AllOf(HasSubstr(folder_),
                HasSubstr("left over: output_layer.weight; missing: "
                          "decoder.layers.0.self_attention.linear_qkv.weight; "
                          "of another shape: decoder.layers.0.mlp.router"
                          ".weight [1, 2] (must be [2, 1])"))));
}

TEST_F(MegatronCheckpointTest, WithoutTheFileThereIsNoCheckpoint) {
  EXPECT_THAT(OpenMegatronCheckpoint("/none", shape_),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("/none/model.safetensors")));
}

}  // namespace
}  // namespace weft::checkpoint

#include "checkpoint/hugging_face.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_matchers.h"
#include "checkpoint/format/hugging_face_names.h"
#include "checkpoint/format/safetensors_writer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/decoder.h"
#include "model/shape.h"

namespace weft::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kConfig[] =
    R"({"model_type": "qwen3_moe", "vocab_size": 7, "hidden_size": 4,
        "intermediate_size": 6, "num_attention_heads": 2, "head_dim": 2,
        "num_key_value_heads": 1, "num_hidden_layers": 2, "num_experts": 3,
        "num_experts_per_tok": 2, "moe_intermediate_size": 5,
        "mlp_only_layers": [0])";

struct Tensor {
  SafetensorsType type = SafetensorsType::kF32;
  std::vector<int64_t> shape;
  std::string bytes;
};

Tensor F32(std::vector<int64_t> shape, float first) {
  int64_t elements = 1;
  for (int64_t dimension : shape) elements *= dimension;
  std::vector<float> values(elements);
  std::iota(values.begin(), values.end(), first);
  return {SafetensorsType::kF32, std::move(shape),
          std::string(reinterpret_cast<const char*>(values.data()),
                      elements * sizeof(float))};
}

model::ModelDecl Declare(const v1::ModelConfig& config) {
  v1::TrainingJob job;
  *job.mutable_model() = config;
  job.mutable_data()->set_sequence_length(4);
  job.mutable_parallel()->set_world(1);
  job.mutable_batch()->set_global_batch(1);
  job.mutable_batch()->set_microbatch(1);
  return model::DeclareDecoder(model::ShapeOf(job));
}

const model::ParamDecl& Find(const model::ModelDecl& decl,
                             const std::string& name) {
  for (const model::ParamDecl& param : decl.params) {
    if (param.name == name) return param;
  }
  ADD_FAILURE() << "no parameter " << name;
  return decl.params[0];
}

void WriteText(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

// A checkpoint whose every tensor begins with its own number of thousands.
class HuggingFaceCheckpointTest : public ::testing::Test {
 protected:
  HuggingFaceCheckpointTest()
      : folder_(absl::StrCat(
            ::testing::TempDir(), "/",
            ::testing::UnitTest::GetInstance()->current_test_info()->name())) {
    SetConfig("");
    float first = 0;
    for (const model::ParamDecl& param : decl_.params) {
      const auto tensors = HfTensorsOf(config_.family, config_.model, param);
      EXPECT_OK(tensors);
      for (const TensorSlice& tensor : *tensors) {
        tensors_[tensor.name] = F32(tensor.shape, first += 1000);
      }
    }
  }

  void SetUp() override {
    ASSERT_EQ(
        std::system(
            ("rm -rf '" + folder_ + "' && mkdir -p '" + folder_ + "'").c_str()),
        0);
  }

  void SetConfig(const std::string& more) {
    text_ = absl::StrCat(kConfig, more, "}");
    const auto config = ParseHfConfig(text_);
    ASSERT_OK(config);
    config_ = *config;
    decl_ = Declare(config_.model);
  }

  std::string Path(const std::string& name) const {
    return absl::StrCat(folder_, "/", name);
  }

  // Writes the tensors that `keep` takes into a file.
  template <typename Keep>
  void WriteFile(const std::string& name, Keep keep) {
    SafetensorsWriter writer;
    for (const auto& [tensor_name, tensor] : tensors_) {
      if (!keep(tensor_name)) continue;
      ASSERT_OK(writer.Add(tensor_name, tensor.type, tensor.shape,
                           tensor.bytes.data()));
    }
    ASSERT_OK(writer.Write(Path(name)));
  }

  void Write() {
    WriteText(Path("config.json"), text_);
    WriteFile("model.safetensors", [](const std::string&) { return true; });
  }

  static bool IsInFirst(const std::string& name) {
    return !absl::StrContains(name, "layers.1.");
  }
  static bool IsInSecond(const std::string& name) { return !IsInFirst(name); }

  // Two files and an index, where `moved` is said to be in the wrong one.
  void WriteShards(const std::string& moved = "") {
    WriteText(Path("config.json"), text_);
    WriteFile("model-00001-of-00002.safetensors", &IsInFirst);
    WriteFile("model-00002-of-00002.safetensors", &IsInSecond);
    std::vector<std::string> places;
    for (const auto& [name, tensor] : tensors_) {
      const int shard = IsInFirst(name) != (name == moved) ? 1 : 2;
      places.push_back(absl::StrCat("\"", name, "\": \"model-0000", shard,
                                    "-of-00002.safetensors\""));
    }
    WriteText(Path("model.safetensors.index.json"),
              absl::StrCat(R"({"metadata": {"total_size": 1},
                               "weight_map": {)",
                           absl::StrJoin(places, ","), "}}"));
  }

  std::unique_ptr<HuggingFaceCheckpoint> Open() const {
    auto checkpoint = HuggingFaceCheckpoint::Open(folder_);
    EXPECT_OK(checkpoint);
    return checkpoint.ok() ? *std::move(checkpoint) : nullptr;
  }

  absl::Status Check() const {
    const auto checkpoint = Open();
    return checkpoint == nullptr ? absl::InternalError("not opened")
                                 : checkpoint->Check(decl_);
  }

  // All values of a parameter as the tensors above have them.
  std::vector<float> ValuesOf(const model::ParamDecl& param) const {
    std::string bytes;
    const auto tensors = HfTensorsOf(config_.family, config_.model, param);
    EXPECT_OK(tensors);
    for (const TensorSlice& tensor : *tensors) {
      bytes += tensors_.at(tensor.name).bytes;
    }
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }

  const std::string folder_;
  std::string text_;
  HfConfig config_;
  model::ModelDecl decl_;
  std::map<std::string, Tensor> tensors_;
};

TEST_F(HuggingFaceCheckpointTest, ReadsWholeParameters) {
  Write();
  const auto checkpoint = Open();
  ASSERT_NE(checkpoint, nullptr);
  EXPECT_EQ(checkpoint->model().num_layers(), 2);
  EXPECT_OK(checkpoint->Check(decl_));
  for (const model::ParamDecl& param : decl_.params) {
    std::vector<float> values(param.local_elements());
    ASSERT_OK(checkpoint->Read(param, 0, absl::MakeSpan(values)));
    EXPECT_EQ(values, ValuesOf(param)) << param.name;
  }
}

TEST_F(HuggingFaceCheckpointTest, TheOrderInsideAParameterIsThatOfTheHeader) {
  Write();
  const auto checkpoint = Open();
  ASSERT_NE(checkpoint, nullptr);
  const model::ParamDecl& param = Find(decl_, "layers.1.experts.gate_up");
  const auto first_of = [&](const std::string& name) {
    float first;
    std::memcpy(&first,
                tensors_.at("model.layers.1.mlp.experts." + name).bytes.data(),
                sizeof(first));
    return first;
  };
  const std::vector<std::string> order = {
      "0.gate_proj.weight", "0.up_proj.weight",   "1.gate_proj.weight",
      "1.up_proj.weight",   "2.gate_proj.weight", "2.up_proj.weight"};
  for (size_t i = 0; i < order.size(); ++i) {
    float value = 0;
    ASSERT_OK(checkpoint->Read(param, i * 20, absl::MakeSpan(&value, 1)));
    EXPECT_EQ(value, first_of(order[i])) << order[i];
  }
}

TEST_F(HuggingFaceCheckpointTest, ReadsAnyPartAcrossTensors) {
  Write();
  const auto checkpoint = Open();
  ASSERT_NE(checkpoint, nullptr);
  for (const char* name : {"layers.0.qkv", "layers.1.experts.down"}) {
    const model::ParamDecl& param = Find(decl_, name);
    const std::vector<float> values = ValuesOf(param);
    const int64_t size = values.size();
    for (int64_t begin = 0; begin <= size; ++begin) {
      for (int64_t end = begin; end <= size; ++end) {
        std::vector<float> out(end - begin);
        ASSERT_OK(checkpoint->Read(param, begin, absl::MakeSpan(out)));
        ASSERT_EQ(out, std::vector<float>(values.begin() + begin,
                                          values.begin() + end))
            << name << " " << begin << " " << end;
      }
    }
  }
}

TEST_F(HuggingFaceCheckpointTest, ReadsNothingOutsideAParameter) {
  Write();
  const auto checkpoint = Open();
  ASSERT_NE(checkpoint, nullptr);
  std::vector<float> out(2);
  for (int64_t begin : {-1, 3, 100}) {
    EXPECT_THAT(
        checkpoint->Read(Find(decl_, "head.norm"), begin, absl::MakeSpan(out)),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 HasSubstr("of parameter \"head.norm\" are not")));
  }
}

TEST_F(HuggingFaceCheckpointTest, ReadsHalves) {
  const std::vector<uint16_t> bf16 = {0x3f80, 0xc000, 0x4049, 0x0000};
  const std::vector<uint16_t> f16 = {0x3c00, 0xc000, 0x4248, 0x0001};
  const auto bytes = [](const std::vector<uint16_t>& bits) {
    return std::string(reinterpret_cast<const char*>(bits.data()), 8);
  };
  tensors_["model.norm.weight"] = {SafetensorsType::kBf16, {4}, bytes(bf16)};
  tensors_["model.layers.0.input_layernorm.weight"] = {
      SafetensorsType::kF16, {4}, bytes(f16)};
  Write();
  const auto checkpoint = Open();
  ASSERT_NE(checkpoint, nullptr);
  EXPECT_OK(checkpoint->Check(decl_));
  std::vector<float> out(4);
  ASSERT_OK(checkpoint->Read(Find(decl_, "head.norm"), 0, absl::MakeSpan(out)));
  EXPECT_THAT(out, ElementsAre(1, -2, 3.140625f, 0));
  ASSERT_OK(
      checkpoint->Read(Find(decl_, "layers.0.norm1"), 0, absl::MakeSpan(out)));
  EXPECT_THAT(out, ElementsAre(1, -2, 3.140625f, 0x1p-24f));
}

TEST_F(HuggingFaceCheckpointTest, ReadsShards) {
  WriteShards();
  const auto checkpoint = Open();
  ASSERT_NE(checkpoint, nullptr);
  EXPECT_OK(checkpoint->Check(decl_));
  for (const model::ParamDecl& param : decl_.params) {
    std::vector<float> values(param.local_elements());
    ASSERT_OK(checkpoint->Read(param, 0, absl::MakeSpan(values)));
    EXPECT_EQ(values, ValuesOf(param)) << param.name;
  }
}

TEST_F(HuggingFaceCheckpointTest, AShardThatContradictsTheIndexIsRefused) {
  WriteShards("model.norm.weight");
  EXPECT_THAT(HuggingFaceCheckpoint::Open(folder_),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("\"model.norm.weight\"")));
}

TEST_F(HuggingFaceCheckpointTest, AShardThatHoldsMoreThanTheIndexIsRefused) {
  WriteShards();
  tensors_["more"] = F32({2}, 0);
  WriteFile("model-00001-of-00002.safetensors", &IsInFirst);
  EXPECT_THAT(HuggingFaceCheckpoint::Open(folder_),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("\"more\" is not in the index")));
}

TEST_F(HuggingFaceCheckpointTest, AMissingShardIsNamed) {
  WriteShards();
  ASSERT_EQ(std::remove(Path("model-00002-of-00002.safetensors").c_str()), 0);
  EXPECT_THAT(HuggingFaceCheckpoint::Open(folder_),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("model-00002-of-00002.safetensors")));
}

TEST_F(HuggingFaceCheckpointTest, ABrokenIndexIsRefused) {
  WriteShards();
  WriteText(Path("model.safetensors.index.json"), "{}");
  EXPECT_THAT(HuggingFaceCheckpoint::Open(folder_),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("model.safetensors.index.json"),
                             HasSubstr("weight_map must be"))));
}

TEST_F(HuggingFaceCheckpointTest, WithoutWeightsThereIsNoCheckpoint) {
  WriteText(Path("config.json"), text_);
  EXPECT_THAT(HuggingFaceCheckpoint::Open(folder_),
              StatusIs(absl::StatusCode::kNotFound,
                       AllOf(HasSubstr(folder_),
                             HasSubstr("holds neither model.safetensors nor "
                                       "model.safetensors.index.json"))));
}

TEST_F(HuggingFaceCheckpointTest, WithoutConfigThereIsNoCheckpoint) {
  EXPECT_THAT(HuggingFaceCheckpoint::Open(folder_),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("config.json")));
}

TEST_F(HuggingFaceCheckpointTest, AConfigThatIsRefusedIsNamed) {
  Write();
  WriteText(Path("config.json"),
            absl::StrCat(kConfig, R"(, "hidden_act": "gelu"})"));
  EXPECT_THAT(HuggingFaceCheckpoint::Open(folder_),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr(Path("config.json")),
                             HasSubstr("hidden_act=\"gelu\""))));
}

TEST_F(HuggingFaceCheckpointTest, BrokenWeightsAreRefused) {
  Write();
  WriteText(Path("model.safetensors"), "x");
  EXPECT_THAT(HuggingFaceCheckpoint::Open(folder_),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr(Path("model.safetensors"))));
}

TEST_F(HuggingFaceCheckpointTest, TensorsThatDoNotFitAreNamedAllAtOnce) {
  tensors_.erase("model.layers.1.mlp.experts.2.up_proj.weight");
  tensors_["model.layers.0.self_attn.sinks"] = F32({2}, 0);
  tensors_["lm_head.weight"] = F32({4, 7}, 0);
  tensors_["model.norm.weight"] = {
      SafetensorsType::kI32, {4}, std::string(16, '\0')};
  Write();
  EXPECT_THAT(
      Check(),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr(folder_),
                     HasSubstr("missing: "
                               "model.layers.1.mlp.experts.2.up_proj.weight"),
                     HasSubstr("left over: model.layers.0.self_attn.sinks"),
                     HasSubstr("of another shape: lm_head.weight [4, 7] (must "
                               "be [7, 4])"),
                     HasSubstr("of another type than F32, BF16 or F16: "
                               "model.norm.weight I32"))));
  const auto checkpoint = Open();
  ASSERT_NE(checkpoint, nullptr);
  for (const char* name :
       {"layers.1.experts.gate_up", "head.output", "head.norm"}) {
    const model::ParamDecl& param = Find(decl_, name);
    std::vector<float> out(param.local_elements());
    EXPECT_THAT(checkpoint->Read(param, 0, absl::MakeSpan(out)),
                StatusIs(absl::StatusCode::kInvalidArgument))
        << name;
  }
}

TEST_F(HuggingFaceCheckpointTest, LayersBeyondTheLastAreRefusedWhereTheyAre) {
  SetConfig(R"(, "num_nextn_predict_layers": 1)");
  Write();
  EXPECT_OK(Check());
  tensors_["model.layers.2.eh_proj.weight"] = F32({4, 8}, 0);
  Write();
  EXPECT_THAT(Check(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("left over: model.layers.2.eh_proj.weight")));
}

TEST_F(HuggingFaceCheckpointTest, ManyTensorsThatDoNotFitAreCounted) {
  const std::map<std::string, Tensor> all = tensors_;
  for (const auto& [name, tensor] : all) {
    if (absl::StrContains(name, ".experts.")) tensors_.erase(name);
  }
  Write();
  EXPECT_THAT(Check(), StatusIs(absl::StatusCode::kInvalidArgument,
                                HasSubstr("weight and 1 more")));
}

TEST_F(HuggingFaceCheckpointTest, ADeclarationOfAnotherModelIsNamed) {
  Write();
  v1::ModelConfig other = config_.model;
  other.set_vocab_size(8);
  const auto checkpoint = Open();
  ASSERT_NE(checkpoint, nullptr);
  EXPECT_THAT(checkpoint->Check(Declare(other)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("\"embedding.table\" has shape [8, 4]"),
                             HasSubstr("model.embed_tokens.weight"),
                             HasSubstr("\"head.output\" has shape"))));
}

TEST_F(HuggingFaceCheckpointTest, TiedEmbeddingsMayBeWrittenTwice) {
  SetConfig(R"(, "tie_word_embeddings": true)");
  tensors_["lm_head.weight"] = tensors_["model.embed_tokens.weight"];
  Write();
  EXPECT_OK(Check());
  tensors_.erase("lm_head.weight");
  Write();
  EXPECT_OK(Check());
}

TEST_F(HuggingFaceCheckpointTest, AHeadThatIsNotTheTiedEmbeddingsIsLeftOver) {
  SetConfig(R"(, "tie_word_embeddings": true)");
  Write();
  EXPECT_THAT(Check(), StatusIs(absl::StatusCode::kInvalidArgument,
                                AllOf(HasSubstr("left over: lm_head.weight"),
                                      Not(HasSubstr("missing")))));
}

}  // namespace
}  // namespace weft::checkpoint

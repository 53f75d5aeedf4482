#include "client/params_export.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/dtype.h"
#include "base/file/read_file.h"
#include "base/status_matchers.h"
#include "checkpoint/format/hugging_face_names.h"
#include "checkpoint/format/safetensors_writer.h"
#include "client/golden_files.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::client {
namespace {

using ::testing::HasSubstr;

constexpr char kQwen2Moe[] = R"({
  "model_type": "qwen2_moe", "vocab_size": 7, "hidden_size": 4,
  "intermediate_size": 6, "num_attention_heads": 4, "num_key_value_heads": 2,
  "num_hidden_layers": 2, "mlp_only_layers": [0], "head_dim": 2,
  "num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 5,
  "shared_expert_intermediate_size": 3})";

constexpr char kTiedMixtral[] = R"({
  "model_type": "mixtral", "vocab_size": 7, "hidden_size": 4,
  "intermediate_size": 6, "num_attention_heads": 4, "num_key_value_heads": 2,
  "num_hidden_layers": 2, "head_dim": 2, "num_local_experts": 2,
  "num_experts_per_tok": 2, "tie_word_embeddings": true})";

// A checkpoint with a value of its own for each element, and the parameters
// that a job has which starts from it.
class ParamsExportTest : public ::testing::Test {
 protected:
  ParamsExportTest()
      : folder_(absl::StrCat(
            ::testing::TempDir(), "/",
            ::testing::UnitTest::GetInstance()->current_test_info()->name())) {}

  std::string Path(const std::string& name) const {
    return folder_ + "/" + name;
  }
  static std::string BytesOf(const std::string& path) {
    const auto bytes = ReadFile(path, 1 << 20);
    EXPECT_OK(bytes);
    return bytes.ok() ? *bytes : "";
  }

  void Make(const std::string& config_text) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(Path("parameters"));
    std::ofstream(Path("config.json")) << config_text;
    ASSERT_OK_AND_ASSIGN(const auto config,
                         checkpoint::ParseHfConfig(config_text));
    v1::TrainingJob job;
    *job.mutable_model() = config.model;
    job.mutable_data()->set_sequence_length(1);
    checkpoint::SafetensorsWriter params;
    for (const auto& param : DeclareOneSequence(job).model.params) {
      ASSERT_OK_AND_ASSIGN(const auto slices,
                           HfTensorsOf(config.family, config.model, param));
      std::vector<float>& values = params_[param.name];
      for (const checkpoint::TensorSlice& slice : slices) {
        auto& [shape, tensor] = tensors_[slice.name];
        shape = slice.shape;
        for (int64_t i = 0; i < slice.elements; ++i) tensor.push_back(++next_);
        values.insert(values.end(), tensor.begin(), tensor.end());
      }
      ASSERT_OK(params.Add(param.name + "@0", DType::kF32,
                           {static_cast<int64_t>(values.size())},
                           values.data()));
    }
    ASSERT_OK(params.Write(Path("parameters/rank-00000.safetensors")));
    checkpoint::SafetensorsWriter model;
    model.SetMetadata("format", "pt");
    for (const auto& [name, tensor] : tensors_) {
      ASSERT_OK(
          model.Add(name, DType::kF32, tensor.first, tensor.second.data()));
    }
    ASSERT_OK(model.Write(Path("model.safetensors")));
  }

  absl::StatusOr<Exported> Export(const std::string& config) {
    const auto params = ParamFolder::Open(folder_);
    if (!params.ok()) return params.status();
    return ExportHuggingFace(*params, config, Path("out/checkpoint"));
  }

  const std::string folder_;
  float next_ = 0;
  std::map<std::string, std::pair<std::vector<int64_t>, std::vector<float>>>
      tensors_;
  std::map<std::string, std::vector<float>> params_;
};

TEST_F(ParamsExportTest, WhatAJobStartedFromIsWrittenAsItWasToTheByte) {
  for (const char* config : {kQwen2Moe, kTiedMixtral}) {
    tensors_.clear();
    params_.clear();
    Make(config);
    ASSERT_OK_AND_ASSIGN(const Exported exported, Export(folder_));
    EXPECT_EQ(exported.tensors, static_cast<int64_t>(tensors_.size()));
    for (const char* name : {"model.safetensors", "config.json"}) {
      EXPECT_EQ(BytesOf(Path(absl::StrCat("out/checkpoint/", name))),
                BytesOf(Path(name)))
          << name;
    }
  }
}

TEST_F(ParamsExportTest, ParametersOfAnotherModelAreRefused) {
  Make(kQwen2Moe);
  const std::string other = Path("other");
  std::filesystem::create_directories(other);
  std::ofstream(other + "/config.json") << kTiedMixtral;
  EXPECT_THAT(Export(other).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("config.json is of another model: the job "
                                 "has no parameter \"layers.0.router\"")));
  std::string wider = kQwen2Moe;
  wider.replace(wider.find("\"intermediate_size\": 6"), 22,
                "\"intermediate_size\": 8");
  std::ofstream(other + "/config.json") << wider;
  EXPECT_THAT(Export(other).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("parameter \"layers.0.mlp.gate_up\": has 48 "
                                 "elements, not those of")));
  EXPECT_FALSE(std::filesystem::exists(Path("out")));
}

TEST_F(ParamsExportTest, AModelThatNoJobMayHaveIsRefusedByItsFields) {
  Make(kTiedMixtral);
  std::string one = kTiedMixtral;
  one.replace(one.find("\"num_experts_per_tok\": 2"), 24,
              "\"num_experts_per_tok\": 1");
  std::ofstream(Path("config.json")) << one;
  EXPECT_THAT(Export(folder_).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("model.moe.top_k")));
}

}  // namespace
}  // namespace weft::client

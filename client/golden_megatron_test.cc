// Reading reference models with Megatron-Core's names, and finding faults in
// what a job left of one.
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "checkpoint/format/safetensors_writer.h"
#include "client/golden_case.h"
#include "client/golden_check.h"
#include "client/golden_tensors.h"
#include "data/format/indexed_dataset.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace weft::client {
namespace {

using ::nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kConfig[] = R"({
  "model_class": "GPTModel", "vocab_size": 9, "num_layers": 1,
  "hidden_size": 4, "num_attention_heads": 2, "num_query_groups": 1,
  "kv_channels": 2, "ffn_hidden_size": 6, "layernorm_epsilon": 1e-05,
  "share_embeddings_and_output_weights": true, "num_moe_experts": 2,
  "moe_ffn_hidden_size": 3, "moe_router_topk": 2,
  "moe_router_load_balancing_type": "aux_loss", "moe_aux_loss_coeff": 0.02,
  "moe_z_loss_coeff": 0.001, "calculate_per_token_loss": true})";

constexpr char kExpected[] = R"({
  "optimizer": {"name": "AdamW", "lr": 0.001, "beta1": 0.9, "beta2": 0.95,
                "eps": 1e-8, "weight_decay": 0.1, "clip_grad_norm": 1.0},
  "steps": [{"lm_loss": 2.0, "objective": 2.5, "grad_norm_before_clip": 1.0,
             "microbatches": [
      {"moe_losses": {"z_loss": [{"layer_number": 1, "raw": 3.0}],
                      "load_balancing_loss": [{"layer_number": 1,
                                               "raw": 1.0}]}},
      {"moe_losses": {"z_loss": [{"layer_number": 1, "raw": 5.0}],
                      "load_balancing_loss": [{"layer_number": 1,
                                               "raw": 1.5}]}}]}]})";

constexpr char kLog[] = R"({"kind":"step","loss":2,"grad_norm":1,)"
                        R"("objective":2.5,"router_losses":[)"
                        R"({"layer":0,"name":"aux","value":1.25},)"
                        R"({"layer":0,"name":"z","value":4}]})";

using Values = std::map<std::string, std::vector<float>>;  // by tensor

class GoldenMegatronTest : public ::testing::Test {
 protected:
  GoldenMegatronTest()
      : folder_(absl::StrCat(
            ::testing::TempDir(), "/",
            ::testing::UnitTest::GetInstance()->current_test_info()->name())) {}

  void SetUp() override {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(model());
    WriteText(model() + "/config.json", kConfig);
    WriteText(model() + "/expected.json", kExpected);
    WriteBatch({1, 4, 3, 6}, {1, 1, 0, 1});
    golden_ = Read();
    gradients_ = MakeValues(0.25f);
    final_ = MakeValues(1.125f);
    WriteTensors(gradients_, kGradientTensors);
    WriteTensors(final_, kFinalTensors);
  }

  static void WriteText(const std::string& path, const std::string& text) {
    std::ofstream(path) << text;
  }

  // Two microbatches, of two sequences and of one, of two tokens each; the
  // labels and the mask of the first are given.
  void WriteBatch(const std::vector<int64_t>& labels,
                  const std::vector<float>& mask, const char* more = "") {
    const std::vector<int64_t> inputs = {0, 1, 5, 3};
    const std::vector<int64_t> second = {7, 8};
    const std::vector<int64_t> second_labels = {8, 0};
    const std::vector<float> ones = {1, 1};
    checkpoint::SafetensorsWriter writer;
    const auto add = [&](const std::string& name, DType type, int64_t rows,
                         const void* data) {
      ASSERT_OK(writer.Add(name, type, {rows, 2}, data));
    };
    add("step0.mb0.input_ids", DType::kI64, 2, inputs.data());
    add("step0.mb0.labels", DType::kI64, 2, labels.data());
    add("step0.mb0.loss_mask", DType::kF32, 2, mask.data());
    add("step0.mb1.input_ids", DType::kI64, 1, second.data());
    add("step0.mb1.labels", DType::kI64, 1, second_labels.data());
    add("step0.mb1.loss_mask", DType::kF32, 1, ones.data());
    if (*more != '\0') add(more, DType::kF32, 1, ones.data());
    ASSERT_OK(writer.Write(model() + "/batch.safetensors"));
  }

  GoldenCase Read() const {
    auto golden = ReadGoldenCase(model());
    EXPECT_OK(golden);
    return golden.ok() ? *std::move(golden) : GoldenCase();
  }
  std::string Error() const {
    return std::string(ReadGoldenCase(model()).status().message());
  }

  // A value for each element of each tensor of the model.
  Values MakeValues(float scale) const {
    Values values;
    float next = 1;
    for (const model::ParamDecl& param : golden_.params) {
      const auto slices = golden_.names(param);
      EXPECT_OK(slices);
      for (const checkpoint::TensorSlice& slice : *slices) {
        std::vector<float>& tensor = values[slice.name];
        tensor.resize(
            checkpoint::WholeTensor(slice.name, slice.shape).elements);
        for (int64_t i = 0; i < slice.elements; ++i) {
          tensor[slice.begin + i] = scale * next++;
        }
      }
    }
    return values;
  }

  void WriteTensors(const Values& values, const std::string& file) const {
    std::map<std::string, std::vector<int64_t>> shapes;
    for (const model::ParamDecl& param : golden_.params) {
      const auto slices = golden_.names(param);
      for (const auto& slice : *slices) shapes[slice.name] = slice.shape;
    }
    checkpoint::SafetensorsWriter writer;
    for (const auto& [name, shape] : shapes) {
      ASSERT_OK(writer.Add(name, DType::kF32, shape, values.at(name).data()));
    }
    ASSERT_OK(writer.Write(model() + "/" + file));
  }

  // As a job of one rank writes its parameters.
  void WriteParams(const Values& values, const std::string& kind) const {
    const std::string folder = artifacts() + "/" + kind;
    std::filesystem::create_directories(folder);
    std::vector<std::vector<float>> wholes;
    wholes.reserve(golden_.params.size());
    checkpoint::SafetensorsWriter writer;
    for (const model::ParamDecl& param : golden_.params) {
      std::vector<float>& whole = wholes.emplace_back();
      const auto slices = golden_.names(param);
      for (const auto& slice : *slices) {
        const auto begin = values.at(slice.name).begin() + slice.begin;
        whole.insert(whole.end(), begin, begin + slice.elements);
      }
      ASSERT_OK(writer.Add(param.name + "@0", DType::kF32,
                           {static_cast<int64_t>(whole.size())}, whole.data()));
    }
    ASSERT_OK(writer.Write(folder + "/rank-00000.safetensors"));
  }

  absl::StatusOr<std::vector<GoldenRow>> Check(
      const Values& gradients, const Values& last,
      const std::string& log = kLog) const {
    WriteParams(gradients, "gradients");
    WriteParams(last, "parameters");
    WriteText(artifacts() + "/steps.rank-0.jsonl", log + "\n");
    const auto job = MakeGoldenJob(golden_, {}, "");
    EXPECT_OK(job);
    return CheckGolden(golden_, *job, artifacts());
  }

  // The checks that do not hold, with what was worst.
  static std::vector<std::string> Broken(
      const absl::StatusOr<std::vector<GoldenRow>>& rows) {
    EXPECT_OK(rows);
    std::vector<std::string> broken;
    if (!rows.ok()) return broken;
    for (const GoldenRow& row : *rows) {
      if (!row.ok()) broken.push_back(row.check + ": " + row.worst);
    }
    return broken;
  }

  // kLog with a word changed.
  static std::string LogWith(const std::string& old,
                             const std::string& replacement) {
    std::string log = kLog;
    const size_t at = log.find(old);
    EXPECT_NE(at, std::string::npos);
    return log.replace(at, old.size(), replacement);
  }

  std::string model() const { return folder_ + "/tiny"; }
  std::string artifacts() const { return folder_ + "/artifacts"; }

  const std::string folder_;
  GoldenCase golden_;
  Values gradients_;
  Values final_;
};

TEST_F(GoldenMegatronTest, TheJobIsThatOfTheFolder) {
  ASSERT_OK_AND_ASSIGN(const v1::TrainingJob job,
                       MakeGoldenJob(golden_, {}, "/data/tiny"));
  EXPECT_EQ(job.steps(), 1);
  EXPECT_EQ(job.init().megatron(), golden_.folder);
  EXPECT_EQ(job.data().sequence_length(), 2);
  EXPECT_EQ(job.data().prefix(), "/data/tiny");
  EXPECT_EQ(job.data().loss_mask_prefix(), "/data/tiny.loss-mask");
  EXPECT_EQ(job.batch().global_batch(), 3);
  EXPECT_EQ(job.batch().microbatch(), 0);
  EXPECT_THAT(job.batch().microbatches(), ElementsAre(2, 1));
  EXPECT_EQ(job.model().moe().router_loss().aux(), 0.02);
  EXPECT_EQ(job.model().moe().router_loss().z(), 0.001);
  EXPECT_EQ(job.loss().normalization(), v1::LOSS_NORMALIZATION_TOKEN);
  EXPECT_EQ(job.optimizer().epsilon(), 1e-8);
}

TEST_F(GoldenMegatronTest, ItsMicrobatchesAreNotCutInAnotherWay) {
  GoldenOptions options;
  options.world = 2;
  EXPECT_THAT(MakeGoldenJob(golden_, options, "").status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("a microbatch of 1 sequences cannot be "
                                 "divided over world=2")));
  options.world = 1;
  options.microbatch = 3;
  EXPECT_THAT(MakeGoldenJob(golden_, options, "").status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("microbatch=3 must be 0")));
}

TEST_F(GoldenMegatronTest, EqualMicrobatchesNeedNoList) {
  GoldenCase golden = golden_;
  golden.microbatches = {2, 2};
  golden.batch = 4;
  GoldenOptions options;
  options.world = 2;
  ASSERT_OK_AND_ASSIGN(const v1::TrainingJob job,
                       MakeGoldenJob(golden, options, ""));
  EXPECT_EQ(job.batch().microbatch(), 1);
  EXPECT_EQ(job.batch().microbatches_size(), 0);
}

std::vector<int64_t> AllTokens(const std::string& prefix) {
  const auto dataset = data::IndexedDataset::Open(prefix);
  EXPECT_OK(dataset);
  std::vector<int64_t> tokens(9);
  EXPECT_OK(dataset->Read(0, absl::MakeSpan(tokens)));
  return tokens;
}

TEST_F(GoldenMegatronTest, ASampleEndsWithTheLastLabel) {
  WriteBatch({1, 4, 3, 6}, {1, 1, 0, 1});
  ASSERT_OK(WriteGoldenData(Read(), folder_ + "/data"));
  EXPECT_THAT(AllTokens(folder_ + "/data"),
              ElementsAre(0, 1, 4, 5, 3, 6, 7, 8, 0));
  EXPECT_THAT(AllTokens(folder_ + "/data.loss-mask"),
              ElementsAre(0, 1, 1, 0, 0, 1, 0, 1, 1));
}

TEST_F(GoldenMegatronTest, WithoutMaskedLabelsThereIsNoMask) {
  WriteBatch({1, 4, 3, 6}, {1, 1, 1, 1});
  const GoldenCase golden = Read();
  ASSERT_OK_AND_ASSIGN(const v1::TrainingJob job,
                       MakeGoldenJob(golden, {}, "/data/tiny"));
  EXPECT_EQ(job.data().loss_mask_prefix(), "");
}

TEST_F(GoldenMegatronTest, AJobThatGivesTheReferenceHoldsEverywhere) {
  const auto rows = Check(gradients_, final_);
  EXPECT_THAT(Broken(rows), ElementsAre());
  ASSERT_OK(rows);
  std::vector<std::string> checks;
  for (const GoldenRow& row : *rows) checks.push_back(row.check);
  EXPECT_THAT(checks, ElementsAre("losses", "gradient norms", "objective",
                                  "router losses", "gradients", "parameters",
                                  "parameters but for 32"));
}

TEST_F(GoldenMegatronTest, NumbersOfAStepAreCompared) {
  EXPECT_THAT(Broken(Check(gradients_, final_, LogWith("2.5,", "2.50001,"))),
              ElementsAre("objective: step 1"));
  EXPECT_THAT(
      Broken(Check(gradients_, final_, LogWith("\"value\":4", "\"value\":3"))),
      ElementsAre("router losses: step 1 layers.0 z"));
  EXPECT_THAT(
      Check(gradients_, final_, LogWith("\"aux\"", "\"global_aux\"")).status(),
      StatusIs(absl::StatusCode::kDataLoss,
               HasSubstr("layers.0 aux was not logged")));
}

TEST_F(GoldenMegatronTest, NamesTheTensorWhoseGradientIsOff) {
  Values gradients = gradients_;
  gradients["decoder.layers.0.self_attention.linear_qkv.weight"][5] += 1;
  EXPECT_THAT(
      Broken(Check(gradients, final_)),
      ElementsAre(
          "gradients: decoder.layers.0.self_attention.linear_qkv.weight"));
}

TEST_F(GoldenMegatronTest, FewElementsMayBeOffALittle) {
  const std::string table = "embedding.word_embeddings.weight";
  Values last = final_;
  for (int i = 0; i < 32; ++i) last[table][i] += 5e-4f;
  EXPECT_THAT(Broken(Check(gradients_, last)), ElementsAre());
  last[table][32] += 5e-4f;
  EXPECT_THAT(Broken(Check(gradients_, last)),
              ElementsAre(HasSubstr("parameters but for 32: " + table)));
  last = final_;
  last[table][7] += 2e-3f;
  EXPECT_THAT(Broken(Check(gradients_, last)),
              ElementsAre("parameters: " + table + " element 7"));
}

// Of the two sequences of the first microbatch, two positions each.
TEST_F(GoldenMegatronTest, LogitsAndRoutingOfTheTraceAreCompared) {
  std::vector<float> logits(36);
  std::iota(logits.begin(), logits.end(), 1);
  // Positions one after another, in each both sequences.
  const std::vector<int64_t> traced = {0, 1, 1, 1, 0, 0, 0, 1};
  checkpoint::SafetensorsWriter trace;
  ASSERT_OK(trace.Add("logits", DType::kF32, {2, 2, 9}, logits.data()));
  ASSERT_OK(trace.Add("router.topk_ids", DType::kI64, {4, 2}, traced.data()));
  ASSERT_OK(trace.Write(model() + "/trace_step0_mb0.safetensors"));
  golden_ = Read();
  ASSERT_OK_AND_ASSIGN(const v1::TrainingJob job,
                       MakeGoldenJob(golden_, {}, ""));
  EXPECT_THAT(job.output().taps(),
              ElementsAre("head.logits", "layers.0.topk_index"));
  const auto write = [&](const std::vector<int32_t>& experts) {
    std::filesystem::create_directories(artifacts() + "/taps");
    checkpoint::SafetensorsWriter taps;
    ASSERT_OK(taps.Add("head.logits@0", DType::kF32, {4, 9}, logits.data()));
    ASSERT_OK(
        taps.Add("layers.0.topk_index@0", DType::kI32, {4, 2}, experts.data()));
    ASSERT_OK(taps.Write(artifacts() + "/taps/rank-00000.safetensors"));
  };
  write({1, 0, 0, 0, 1, 1, 1, 0});
  EXPECT_THAT(Broken(Check(gradients_, final_)), ElementsAre());
  write({1, 0, 0, 0, 1, 0, 1, 0});
  EXPECT_THAT(Broken(Check(gradients_, final_)),
              ElementsAre("routing: layers.0.topk_index of sequence 1, "
                          "position 0"));
  logits[20] = 0;
  write({1, 0, 0, 0, 1, 1, 1, 0});
  EXPECT_THAT(Broken(Check(gradients_, final_)),
              ElementsAre("logits: sequence 1"));
}

TEST_F(GoldenMegatronTest, SaysWhatIsWrongWithABatch) {
  WriteBatch({2, 4, 3, 6}, {1, 1, 1, 1});
  EXPECT_THAT(Error(), HasSubstr("step0.mb0.labels: sequence 0, position 0 has "
                                 "2, but the token after it is 1"));
  WriteBatch({1, 4, 3, 6}, {1, 0.5f, 1, 1});
  EXPECT_THAT(Error(), HasSubstr("step0.mb0.loss_mask has 0.5"));
  WriteBatch({1, 4, 3, 6}, {1, 1, 1, 1}, "step0.mb0.padding_mask");
  EXPECT_THAT(Error(), HasSubstr("step0.mb0.padding_mask is nothing that a "
                                 "job reads"));
}

TEST_F(GoldenMegatronTest, AFeatureThatWeftLacksIsRefusedByItsField) {
  json config = json::parse(kConfig);
  config["mtp_num_layers"] = 1;
  config["multi_latent_attention"] = true;
  WriteText(model() + "/config.json", config.dump());
  EXPECT_THAT(Error(), HasSubstr("multi_latent_attention=true: must be false"));
  EXPECT_THAT(Error(), HasSubstr("mtp_num_layers=1: must be null"));
}

TEST_F(GoldenMegatronTest, AFolderOfNeitherFormatIsRefused) {
  WriteText(model() + "/config.json", "{}");
  EXPECT_THAT(Error(), HasSubstr("has neither model_type"));
}

}  // namespace
}  // namespace weft::client

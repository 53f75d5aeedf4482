// A tiny reference model with Megatron-Core's names, and what a job leaves of
// it.
#ifndef WEFT_CLIENT_GOLDEN_MEGATRON_FIXTURE_H_
#define WEFT_CLIENT_GOLDEN_MEGATRON_FIXTURE_H_

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "checkpoint/format/safetensors_writer.h"
#include "client/golden_case.h"
#include "client/golden_check.h"
#include "client/golden_tensors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace weft::client {

inline constexpr char kConfig[] = R"({
  "model_class": "GPTModel", "vocab_size": 9, "num_layers": 1,
  "hidden_size": 4, "num_attention_heads": 2, "num_query_groups": 1,
  "kv_channels": 2, "ffn_hidden_size": 6, "layernorm_epsilon": 1e-05,
  "share_embeddings_and_output_weights": true, "num_moe_experts": 2,
  "moe_ffn_hidden_size": 3, "moe_router_topk": 2,
  "moe_router_load_balancing_type": "aux_loss", "moe_aux_loss_coeff": 0.02,
  "moe_z_loss_coeff": 0.001, "calculate_per_token_loss": true})";

inline constexpr char kExpected[] = R"({
  "optimizer": {"name": "AdamW", "lr": 0.001, "beta1": 0.9, "beta2": 0.95,
                "eps": 1e-8, "weight_decay": 0.1, "clip_grad_norm": 1.0},
  "num_parameters": 176,
  "scaling": {"microbatches_per_step": 2},
  "steps": [{"lm_loss": 2.0, "objective": 2.0324, "grad_norm_before_clip": 1.0,
             "microbatches": [
      {"lm_loss_sum": 6.0, "num_tokens": 3, "lm_loss": 2.0,
       "moe_losses": {"z_loss": [{"layer_number": 1, "raw": 3.0,
                                  "coeff": 0.001}],
                      "load_balancing_loss": [{"layer_number": 1, "raw": 1.0,
                                               "coeff": 0.02}]}},
      {"lm_loss_sum": 4.0, "num_tokens": 2, "lm_loss": 2.0,
       "moe_losses": {"z_loss": [{"layer_number": 1, "raw": 5.0,
                                  "coeff": 0.001}],
                      "load_balancing_loss": [{"layer_number": 1, "raw": 1.5,
                                               "coeff": 0.02}]}}],
             "tokens_per_expert": [[[4, 4]], [[2, 2]]]}]})";

inline constexpr char kLog[] = R"({"kind":"step","loss":2,"grad_norm":1,)"
                               R"("objective":2.0324,"router_losses":[)"
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
    logits_.resize(36);
    std::iota(logits_.begin(), logits_.end(), 1);
    WriteTrace();
    WriteTaps({1, 0, 0, 1, 1, 0, 1, 0}, {0, 1, 0, 1});
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
                  const std::vector<float>& mask, const char* more = "",
                  bool padding = false) {
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
    if (*more != '\0' && !padding) add(more, DType::kF32, 1, ones.data());
    const std::vector<uint8_t> last = {0, 1};
    if (padding) {
      ASSERT_OK(writer.Add(more, checkpoint::SafetensorsType::kU8, {1, 2},
                           last.data()));
    }
    ASSERT_OK(writer.Write(model() + "/batch.safetensors"));
  }

  // Of the two sequences of the first microbatch, two positions each.
  void WriteTrace(const char* more = "") {
    // Positions one after another, in each both sequences.
    const std::vector<int64_t> traced = {0, 1, 1, 0, 0, 1, 0, 1};
    checkpoint::SafetensorsWriter trace;
    ASSERT_OK(trace.Add("logits", DType::kF32, {2, 2, 9}, logits_.data()));
    ASSERT_OK(trace.Add("router.topk_ids", DType::kI64, {4, 2}, traced.data()));
    if (*more != '\0') {
      ASSERT_OK(trace.Add(more, DType::kF32, {1}, logits_.data()));
    }
    ASSERT_OK(trace.Write(model() + "/trace_step0_mb0.safetensors"));
  }

  // As a job of one rank taps both microbatches.
  void WriteTaps(const std::vector<int32_t>& first,
                 const std::vector<int32_t>& second) {
    std::filesystem::create_directories(artifacts() + "/taps");
    checkpoint::SafetensorsWriter taps;
    ASSERT_OK(taps.Add("head.logits@0", DType::kF32, {4, 9}, logits_.data()));
    ASSERT_OK(
        taps.Add("layers.0.topk_index@0", DType::kI32, {4, 2}, first.data()));
    ASSERT_OK(
        taps.Add("layers.0.topk_index@1", DType::kI32, {2, 2}, second.data()));
    ASSERT_OK(taps.Write(artifacts() + "/taps/rank-00000.safetensors"));
  }

  // The error when expected.json has `edit` done to it.
  std::string ErrorWith(
      const std::function<void(nlohmann::json&)>& edit) const {
    nlohmann::json expected = nlohmann::json::parse(kExpected);
    edit(expected);
    WriteText(model() + "/expected.json", expected.dump());
    return Error();
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
  std::vector<float> logits_;  // of the first microbatch
  GoldenCase golden_;
  Values gradients_;
  Values final_;
};

}  // namespace weft::client

#endif  // WEFT_CLIENT_GOLDEN_MEGATRON_FIXTURE_H_

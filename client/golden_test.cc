// Reading reference models, and finding faults in what a job left of one.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_matchers.h"
#include "checkpoint/format/safetensors_writer.h"
#include "client/golden_bf16.h"
#include "client/golden_case.h"
#include "client/golden_check.h"
#include "client/golden_tensors.h"
#include "data/format/indexed_dataset.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::client {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kConfig[] = R"({
  "model_type": "llama", "architectures": ["LlamaForCausalLM"],
  "vocab_size": 3, "hidden_size": 2, "intermediate_size": 1,
  "num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1,
  "head_dim": 2, "hidden_act": "silu", "rms_norm_eps": 1e-6,
  "tie_word_embeddings": false})";

constexpr char kExpected[] = R"({
  "losses": [2.0, 1.5], "grad_norms": [1.0, 0.5],
  "optimizer": {"name": "AdamW", "lr": 0.001, "beta1": 0.9, "beta2": 0.95,
                "eps": 1e-5, "weight_decay": 0.1, "clip_grad_norm": 1.0}})";

// One of the checkpoint's tensors, and where it lies in a parameter of ours.
struct Piece {
  const char* tensor;
  std::vector<int64_t> shape;
  const char* param;
};

const std::vector<Piece>& Pieces() {
  static const auto& pieces = *new std::vector<Piece>{
      {"model.embed_tokens.weight", {3, 2}, "embedding.table"},
      {"model.layers.0.input_layernorm.weight", {2}, "layers.0.norm1"},
      {"model.layers.0.self_attn.q_proj.weight", {2, 2}, "layers.0.qkv"},
      {"model.layers.0.self_attn.k_proj.weight", {2, 2}, "layers.0.qkv"},
      {"model.layers.0.self_attn.v_proj.weight", {2, 2}, "layers.0.qkv"},
      {"model.layers.0.self_attn.o_proj.weight", {2, 2}, "layers.0.out"},
      {"model.layers.0.post_attention_layernorm.weight", {2}, "layers.0.norm2"},
      {"model.layers.0.mlp.gate_proj.weight", {1, 2}, "layers.0.mlp.gate_up"},
      {"model.layers.0.mlp.up_proj.weight", {1, 2}, "layers.0.mlp.gate_up"},
      {"model.layers.0.mlp.down_proj.weight", {2, 1}, "layers.0.mlp.down"},
      {"model.norm.weight", {2}, "head.norm"},
      {"lm_head.weight", {3, 2}, "head.output"}};
  return pieces;
}

using Values = std::map<std::string, std::vector<float>>;  // by tensor

// Elements that differ from tensor to tensor.
Values MakeValues(float scale) {
  Values values;
  float next = 1;
  for (const Piece& piece : Pieces()) {
    int64_t elements = 1;
    for (int64_t size : piece.shape) elements *= size;
    for (int64_t i = 0; i < elements; ++i) {
      values[piece.tensor].push_back(scale * next++);
    }
  }
  return values;
}

void WriteTensors(const Values& values, const std::string& path) {
  checkpoint::SafetensorsWriter writer;
  for (const Piece& piece : Pieces()) {
    ASSERT_OK(writer.Add(piece.tensor, DType::kF32, piece.shape,
                         values.at(piece.tensor).data()));
  }
  ASSERT_OK(writer.Write(path));
}

// As a job writes them: the second half of each parameter by the second rank.
void WriteFragments(const Values& values, const std::string& folder) {
  std::map<std::string, std::vector<float>> params;
  for (const Piece& piece : Pieces()) {
    std::vector<float>& param = params[piece.param];
    const std::vector<float>& tensor = values.at(piece.tensor);
    param.insert(param.end(), tensor.begin(), tensor.end());
  }
  std::filesystem::create_directories(folder);
  for (int rank : {0, 1}) {
    checkpoint::SafetensorsWriter writer;
    for (const auto& [name, param] : params) {
      const int64_t half = param.size() / 2;
      const int64_t begin = rank * half;
      const int64_t end = rank == 0 ? half : param.size();
      ASSERT_OK(writer.Add(absl::StrCat(name, "@", begin), DType::kF32,
                           {end - begin}, param.data() + begin));
    }
    ASSERT_OK(
        writer.Write(absl::StrCat(folder, "/rank-0000", rank, ".safetensors")));
  }
}

class GoldenTest : public ::testing::Test {
 protected:
  GoldenTest()
      : folder_(absl::StrCat(
            ::testing::TempDir(), "/",
            ::testing::UnitTest::GetInstance()->current_test_info()->name())) {}

  void SetUp() override {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(model());
    WriteText(model() + "/config.json", kConfig);
    WriteText(model() + "/expected.json", kExpected);
    std::iota(logits_.begin(), logits_.end(), 1);
    WriteBatch(logits_);
    std::vector<float> tapped(&logits_[0], &logits_[6]);
    tapped.insert(tapped.end(), &logits_[9], &logits_[15]);
    WriteTap(0, tapped);
    WriteTensors(initial_, model() + "/model.safetensors");
    WriteTensors(gradients_, model() + "/grads_step0.safetensors");
    WriteTensors(final_, model() + "/params_step3.safetensors");
  }

  // Two steps of two sequences of three tokens; of the first step also logits,
  // unless there are none.
  void WriteBatch(const std::vector<float>& logits, const char* more = "") {
    const std::vector<int64_t> ids = {0, 1, 2, 1, 0, 2, 2, 2, 0, 1, 1, 1};
    checkpoint::SafetensorsWriter writer;
    ASSERT_OK(writer.Add("input_ids", DType::kI64, {2, 2, 3}, ids.data()));
    if (!logits.empty()) {
      ASSERT_OK(
          writer.Add("logits_step0", DType::kF32, {2, 3, 3}, logits.data()));
    }
    if (*more != '\0') {
      ASSERT_OK(writer.Add(more, DType::kI64, {12}, ids.data()));
    }
    ASSERT_OK(writer.Write(model() + "/batch.safetensors"));
  }

  // What a rank taps of its sequences, of two predictions each.
  void WriteTap(int rank, const std::vector<float>& logits) {
    std::filesystem::create_directories(artifacts() + "/taps");
    checkpoint::SafetensorsWriter writer;
    ASSERT_OK(writer.Add("head.logits@0", DType::kF32,
                         {static_cast<int64_t>(logits.size()) / 3, 3},
                         logits.data()));
    ASSERT_OK(writer.Write(
        absl::StrCat(artifacts(), "/taps/rank-0000", rank, ".safetensors")));
  }

  void WriteText(const std::string& path, const std::string& text) {
    std::ofstream(path) << text;
  }

  // Leaves what a job with these figures leaves, and checks it.
  std::vector<GoldenRow> Check(const Values& gradients, const Values& last,
                               double loss = 1.5, double norm = 0.5) {
    WriteFragments(gradients, artifacts() + "/gradients");
    WriteFragments(last, artifacts() + "/parameters");
    WriteText(artifacts() + "/steps.rank-0.jsonl",
              absl::StrCat("{\"kind\":\"step\",\"loss\":2,\"grad_norm\":1}\n"
                           "{\"kind\":\"step\",\"loss\":",
                           loss, ",\"grad_norm\":", norm, "}\n"));
    const auto golden = ReadGoldenCase(model());
    EXPECT_OK(golden);
    if (!golden.ok()) return {};
    const auto job = MakeGoldenJob(*golden, {}, "");
    EXPECT_OK(job);
    const auto rows = CheckGolden(*golden, *job, artifacts());
    EXPECT_OK(rows);
    return rows.ok() ? *rows : std::vector<GoldenRow>();
  }

  // The checks that do not hold, with what was worst.
  static std::vector<std::string> Broken(const std::vector<GoldenRow>& rows) {
    std::vector<std::string> broken;
    for (const GoldenRow& row : rows) {
      if (!row.ok()) broken.push_back(row.check + ": " + row.worst);
    }
    return broken;
  }

  std::string model() const { return folder_ + "/tiny"; }
  std::string artifacts() const { return folder_ + "/artifacts"; }

  const std::string folder_;
  std::vector<float> logits_ = std::vector<float>(18);
  const Values initial_ = MakeValues(1);
  const Values gradients_ = MakeValues(0.25f);
  const Values final_ = MakeValues(1.001f);
};

// Hugging Face's references have biases of experts beside gradients, as they
// are; Megatron-Core's have none there.
TEST_F(GoldenTest, BiasesOfExpertsMayLieBesideGradients) {
  ASSERT_OK_AND_ASSIGN(GoldenCase golden, ReadGoldenCase(model()));
  golden.biases.emplace_back().name = "layers.0.expert_bias";
  golden.names = [names = golden.names](const model::ParamDecl& param)
      -> absl::StatusOr<std::vector<checkpoint::TensorSlice>> {
    if (param.name != "layers.0.expert_bias") return names(param);
    return std::vector<checkpoint::TensorSlice>{
        checkpoint::WholeTensor("bias", {2})};
  };
  const auto write = [&](const Values& values, const std::string& name) {
    const std::vector<float> bias = {1, 2};
    checkpoint::SafetensorsWriter writer;
    for (const Piece& piece : Pieces()) {
      ASSERT_OK(writer.Add(piece.tensor, DType::kF32, piece.shape,
                           values.at(piece.tensor).data()));
    }
    ASSERT_OK(writer.Add("bias", DType::kF32, {2}, bias.data()));
    ASSERT_OK(writer.Write(absl::StrCat(model(), "/", name)));
  };
  write(initial_, "model.safetensors");
  EXPECT_THAT(CheckReference(golden),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("params_step3.safetensors: bias is absent")));
  write(final_, "params_step3.safetensors");
  EXPECT_OK(CheckReference(golden));
  write(gradients_, "grads_step0.safetensors");
  EXPECT_OK(CheckReference(golden));
}

// What no job may have is told as the rules of jobs say it, before weights are
// looked at.
TEST_F(GoldenTest, AModelThatIsNotSupportedIsRefusedByItsFields) {
  WriteText(model() + "/config.json",
            R"({"model_type": "mixtral", "vocab_size": 3, "hidden_size": 2,
                "intermediate_size": 1, "num_hidden_layers": 1, "head_dim": 2,
                "num_attention_heads": 1, "num_key_value_heads": 1,
                "num_experts_per_tok": 1})");
  EXPECT_THAT(ReadGoldenCase(model()).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("model.moe.top_k")));
}

TEST_F(GoldenTest, AJobThatGivesTheReferenceHoldsEverywhere) {
  const auto rows = Check(gradients_, final_);
  EXPECT_EQ(rows.size(), 5);
  EXPECT_THAT(Broken(rows), ElementsAre());
}

TEST_F(GoldenTest, NamesTheTensorWhoseGradientIsDoubled) {
  Values gradients = gradients_;
  for (float& x : gradients["model.layers.0.mlp.up_proj.weight"]) x *= 2;
  EXPECT_THAT(Broken(Check(gradients, final_)),
              ElementsAre("gradients: model.layers.0.mlp.up_proj.weight"));
}

TEST_F(GoldenTest, MeasuresTheChangeOfParametersNotTheirSize) {
  // A norm that decays although it must not: a small error of the parameter is
  // a large one of its change.
  Values last = final_;
  for (float& x : last["model.norm.weight"]) x *= 0.9999f;
  EXPECT_THAT(Broken(Check(gradients_, last)),
              ElementsAre("change of parameters: model.norm.weight"));
}

TEST_F(GoldenTest, ANormThatIsOnePercentOffOrALossThatIsLostDoesNotHold) {
  EXPECT_THAT(Broken(Check(gradients_, final_, 1.5, 0.505)),
              ElementsAre("gradient norms: step 2"));
  EXPECT_THAT(Broken(Check(gradients_, final_, 1.51)),
              ElementsAre("losses: step 2"));
}

TEST_F(GoldenTest, AZeroGradientMustBeZero) {
  Values reference = gradients_;
  for (float& x : reference["lm_head.weight"]) x = 0;
  WriteTensors(reference, model() + "/grads_step0.safetensors");
  Values ours = reference;
  EXPECT_THAT(Broken(Check(ours, final_)), ElementsAre());
  ours["lm_head.weight"][0] = 1e-30f;
  EXPECT_THAT(Broken(Check(ours, final_)),
              ElementsAre("gradients: lm_head.weight"));
}

TEST_F(GoldenTest, InBf16LossesAndTheWholeGradientAreCompared) {
  Check(gradients_, final_);  // leaves all there is
  ASSERT_OK_AND_ASSIGN(const GoldenCase golden, ReadGoldenCase(model()));
  const auto broken = [&](const Values& gradients, double loss) {
    WriteFragments(gradients, artifacts() + "/gradients");
    WriteText(artifacts() + "/steps.rank-0.jsonl",
              absl::StrCat("{\"kind\":\"step\",\"loss\":2}\n"
                           "{\"kind\":\"step\",\"loss\":",
                           loss, "}\n"));
    const auto rows = CheckBf16(golden, artifacts());
    EXPECT_OK(rows);
    return rows.ok() ? Broken(*rows) : std::vector<std::string>();
  };
  // Off by half in a small tensor, which is little of them all.
  Values gradients = gradients_;
  gradients["model.embed_tokens.weight"][0] *= 1.5f;
  EXPECT_THAT(broken(gradients, 1.51), ElementsAre());
  EXPECT_THAT(broken(gradients, 1.52), ElementsAre("losses in bf16: step 2"));
  for (float& x : gradients["lm_head.weight"]) x *= 1.1f;
  EXPECT_THAT(broken(gradients, 1.5),
              ElementsAre("all gradients in bf16: lm_head.weight"));
}

TEST_F(GoldenTest, ABf16JobReplaysWhatTheFp32JobRecorded) {
  ASSERT_OK_AND_ASSIGN(const GoldenCase golden, ReadGoldenCase(model()));
  ASSERT_OK_AND_ASSIGN(const v1::TrainingJob job,
                       MakeGoldenJob(golden, {}, ""));
  const v1::TrainingJob recording = MakeRecordingJob(job);
  EXPECT_TRUE(recording.output().routing());
  EXPECT_FALSE(recording.output().final_parameters());
  EXPECT_EQ(recording.precision().compute(), v1::NUMBER_FORMAT_UNSPECIFIED);
  const v1::TrainingJob bf16 = MakeBf16Job(job, "/recorded");
  EXPECT_EQ(bf16.replay_routing(), "/recorded");
  EXPECT_EQ(bf16.precision().compute(), v1::NUMBER_FORMAT_BF16);
  EXPECT_EQ(bf16.output().gradients_step(), 1);
  EXPECT_EQ(bf16.output().taps_size(), 0);
}

TEST_F(GoldenTest, ANanDoesNotHold) {
  Values gradients = gradients_;
  gradients["lm_head.weight"][1] = std::nanf("");
  EXPECT_THAT(Broken(Check(gradients, final_)),
              ElementsAre("gradients: lm_head.weight"));
}

TEST_F(GoldenTest, LogitsOfAllRanksAreComparedWhereAPositionPredicts) {
  Check(gradients_, final_);  // leaves all but taps
  ASSERT_OK_AND_ASSIGN(const GoldenCase golden, ReadGoldenCase(model()));
  GoldenOptions options;
  options.world = 2;
  ASSERT_OK_AND_ASSIGN(const v1::TrainingJob job,
                       MakeGoldenJob(golden, options, ""));
  EXPECT_EQ(job.output().tap_step(), 1);
  EXPECT_THAT(job.output().taps(), ElementsAre("head.logits"));
  const auto broken = [&] {
    const auto rows = CheckGolden(golden, job, artifacts());
    EXPECT_OK(rows);
    return rows.ok() ? Broken(*rows) : std::vector<std::string>();
  };
  WriteTap(0, {&logits_[0], &logits_[6]});
  WriteTap(1, {&logits_[9], &logits_[15]});
  EXPECT_THAT(broken(), ElementsAre());
  logits_[11] += 0.01f;
  WriteTap(1, {&logits_[9], &logits_[15]});
  EXPECT_THAT(broken(), ElementsAre("logits: sequence 1"));
  std::filesystem::remove(artifacts() + "/taps/rank-00001.safetensors");
  EXPECT_THAT(CheckGolden(golden, job, artifacts()).status(),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("taps/rank-00001.safetensors")));
}

TEST_F(GoldenTest, TheJobIsThatOfTheFolder) {
  ASSERT_OK_AND_ASSIGN(const GoldenCase golden, ReadGoldenCase(model()));
  GoldenOptions options;
  options.world = 2;
  ASSERT_OK_AND_ASSIGN(const v1::TrainingJob job,
                       MakeGoldenJob(golden, options, "/data/tiny"));
  EXPECT_EQ(job.steps(), 2);
  EXPECT_EQ(job.data().sequence_length(), 2);
  EXPECT_EQ(job.batch().global_batch(), 2);
  EXPECT_EQ(job.batch().microbatch(), 1);
  EXPECT_EQ(job.optimizer().epsilon(), 1e-5);
  EXPECT_EQ(job.init().hugging_face(), golden.folder);
  options.world = 3;
  EXPECT_THAT(MakeGoldenJob(golden, options, "").status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("a batch of 2 sequences cannot be divided "
                                 "over world=3")));
}

TEST_F(GoldenTest, AFileThatIsAFolderIsRefused) {
  for (const char* file : {"/expected.json", "/config.json"}) {
    std::filesystem::remove(model() + file);
    std::filesystem::create_directory(model() + file);
    EXPECT_THAT(ReadGoldenCase(model()).status(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("json: not a regular file")));
  }
}

TEST_F(GoldenTest, AFolderWhoseNameIsNotUtf8IsRefused) {
  const std::string renamed = folder_ + "/l\xff";
  std::filesystem::rename(model(), renamed);
  EXPECT_THAT(ReadGoldenCase(renamed).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("its name is not UTF-8")));
}

TEST_F(GoldenTest, TheDatasetHoldsASequenceASample) {
  ASSERT_OK_AND_ASSIGN(const GoldenCase golden, ReadGoldenCase(model()));
  ASSERT_OK(WriteGoldenData(golden, folder_ + "/data"));
  ASSERT_OK_AND_ASSIGN(const auto dataset,
                       data::IndexedDataset::Open(folder_ + "/data"));
  EXPECT_EQ(dataset.index().num_sequences(), 4);
  std::vector<int64_t> tokens(12);
  ASSERT_OK(dataset.Read(0, absl::MakeSpan(tokens)));
  EXPECT_THAT(tokens, ElementsAre(0, 1, 2, 1, 0, 2, 2, 2, 0, 1, 1, 1));
}

TEST_F(GoldenTest, SaysWhatIsWrongWithAFolder) {
  const auto error = [&](const std::string& file, const std::string& text) {
    WriteText(model() + "/" + file, text);
    return std::string(ReadGoldenCase(model()).status().message());
  };
  EXPECT_THAT(error("expected.json", R"({"losses": [1, "x"]})"),
              AllOf(HasSubstr("expected.json: losses=[1,\"x\"]: "),
                    HasSubstr("optimizer is absent: must be an object")));
  const auto edited = [&](const std::string& old, const std::string& other) {
    std::string text = kExpected;
    const size_t at = text.find(old);
    EXPECT_NE(at, std::string::npos) << old;
    return error("expected.json", text.replace(at, old.size(), other));
  };
  EXPECT_THAT(edited("[2.0, 1.5]", "[2.0, \"x\"]"),
              HasSubstr("losses=[2.0,\"x\"]: must be a list of 2 numbers"));
  EXPECT_THAT(edited("AdamW", "SGD"),
              HasSubstr("optimizer.name=\"SGD\": must be \"AdamW\""));
  EXPECT_THAT(edited("\"eps\"", "\"amsgrad\": true, \"eps\""),
              HasSubstr("optimizer.amsgrad=true: is not known"));
  EXPECT_THAT(edited("\"losses\"", "\"batch\": 3, \"losses\""),
              HasSubstr("batch=3: must be an integer of 2 to 2"));
  EXPECT_THAT(edited("\"losses\"", "\"seq\": 4, \"losses\""),
              HasSubstr("seq=4: must be an integer of 3 to 3"));
  EXPECT_THAT(
      edited("\"losses\"", "\"params_without_grad\": [\"x\"], \"losses\""),
      HasSubstr("params_without_grad=[\"x\"]: must be []"));
  EXPECT_THAT(edited("\"losses\"", "\"losses\": [9, 9], \"losses\""),
              HasSubstr("the key \"losses\" occurs twice"));
  EXPECT_THAT(error("expected.json", kExpected + std::string("x")),
              HasSubstr("expected.json: not valid JSON"));
  WriteText(model() + "/expected.json", kExpected);
  WriteBatch({});
  EXPECT_THAT(ReadGoldenCase(model()).status(),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("logits_step0 must be F32 [2, 3, 3]")));
  WriteBatch(logits_, "attention_mask");
  EXPECT_THAT(
      ReadGoldenCase(model()).status(),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("attention_mask is nothing that a job reads")));
  EXPECT_THAT(ReadGoldenCase(folder_ + "/none").status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("none")));
}

}  // namespace
}  // namespace weft::client

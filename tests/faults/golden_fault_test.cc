// `weftctl golden` notices a worker that computes wrongly, and says where.
//
// The reference is what the shipped worker gives; that it is right is for
// references from elsewhere to say.
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "base/status_matchers.h"
#include "checkpoint/format/safetensors_writer.h"
#include "client/golden_case.h"
#include "client/golden_taps.h"
#include "client/golden_tensors.h"
#include "client/params_diff.h"
#include "client/run_results.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/cluster/cluster.h"
#include "tests/cluster/files.h"
#include "tests/cluster/subprocess.h"
#include "worker/service/checkpoint_testutil.h"

namespace weft::testing {
namespace {

using ::nlohmann::json;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Key;
using ::testing::Not;
using ::testing::Pair;

constexpr int kSteps = 3;
constexpr int kBatch = 4;
constexpr int kTokens = 13;  // of a sequence
constexpr int kVocab = 29;

std::string ModelFolder() { return TestFolder() + "/tiny"; }

client::GoldenOptions Options() {
  client::GoldenOptions options;
  options.world = 2;
  options.ep = 2;
  options.microbatch = 1;
  return options;
}

// `logits` of the first step, of positions that predict: [kBatch, kTokens - 1,
// kVocab].
absl::Status WriteBatches(const std::vector<float>& logits) {
  std::mt19937 random(5);
  std::vector<int64_t> ids(kSteps * kBatch * kTokens);
  for (int64_t& id : ids) id = random() % kVocab;
  std::vector<float> all;
  constexpr int kPredicting = (kTokens - 1) * kVocab;
  for (int i = 0; i < kBatch; ++i) {
    const auto begin = logits.begin() + i * kPredicting;
    all.insert(all.end(), begin, begin + kPredicting);
    all.resize(all.size() + kVocab);
  }
  checkpoint::SafetensorsWriter writer;
  RETURN_IF_ERROR(writer.Add("input_ids", DType::kI64,
                             {kSteps, kBatch, kTokens}, ids.data()));
  RETURN_IF_ERROR(writer.Add("logits_step0", DType::kF32,
                             {kBatch, kTokens, kVocab}, all.data()));
  return writer.Write(ModelFolder() + "/batch.safetensors");
}

// Gradients are clipped in every step.
void WriteExpected(const std::vector<client::StepNumbers>& steps) {
  json expected = {{"optimizer",
                    {{"name", "AdamW"},
                     {"lr", 0.001},
                     {"beta1", 0.9},
                     {"beta2", 0.95},
                     {"eps", 1e-5},
                     {"weight_decay", 0.1},
                     {"clip_grad_norm", 0.1}}}};
  for (const client::StepNumbers& step : steps) {
    expected["losses"].push_back(step.loss);
    expected["grad_norms"].push_back(step.grad_norm);
  }
  std::ofstream(ModelFolder() + "/expected.json") << expected;
}

// Writes what a job left as a file of the reference.
absl::Status WriteTensors(const client::GoldenCase& golden,
                          const std::string& written,
                          const std::string& reference) {
  ASSIGN_OR_RETURN(const auto folder, client::ParamFolder::Open(written));
  checkpoint::SafetensorsWriter writer;
  std::deque<std::vector<float>> wholes;  // the writer borrows them
  for (const model::ParamDecl& param : golden.params) {
    ASSIGN_OR_RETURN(wholes.emplace_back(),
                     client::WholeParam(folder, param.name));
    ASSIGN_OR_RETURN(const auto slices, golden.names(param));
    const float* values = wholes.back().data();
    for (const checkpoint::TensorSlice& slice : slices) {
      RETURN_IF_ERROR(writer.Add(slice.name, DType::kF32, slice.shape, values));
      values += slice.elements;
    }
  }
  return writer.Write(golden.folder + "/" + reference);
}

absl::StatusOr<std::unique_ptr<Cluster>> StartCluster(
    const std::string& worker) {
  ClusterOptions options;
  options.workers = 2;
  options.worker = worker;
  return Cluster::Start(options);
}

// Makes the reference model: a checkpoint, and what the shipped worker makes of
// it.
absl::Status MakeReference() {
  std::filesystem::create_directories(ModelFolder());
  RETURN_IF_ERROR(service::WriteMixtral(ModelFolder()));
  RETURN_IF_ERROR(
      WriteBatches(std::vector<float>(kBatch * (kTokens - 1) * kVocab)));
  WriteExpected(std::vector<client::StepNumbers>(kSteps));
  ASSIGN_OR_RETURN(const client::GoldenCase golden,
                   client::ReadGoldenCase(ModelFolder()));
  const std::string prefix = TestFolder() + "/data";
  RETURN_IF_ERROR(client::WriteGoldenData(golden, prefix));
  ASSIGN_OR_RETURN(const v1::TrainingJob job,
                   client::MakeGoldenJob(golden, Options(), prefix));
  ASSIGN_OR_RETURN(const auto cluster, StartCluster("worker/worker"));
  ASSIGN_OR_RETURN(const JobResult result, cluster->Run(job));
  const std::string artifacts = result.job.artifacts();
  ASSIGN_OR_RETURN(const auto steps, client::ReadSteps(artifacts));
  WriteExpected(steps);
  ASSIGN_OR_RETURN(const std::vector<float> logits,
                   client::ReadTappedFloats(result.job.spec(), artifacts,
                                            client::LogitsOf(golden), kBatch));
  RETURN_IF_ERROR(WriteBatches(logits));
  RETURN_IF_ERROR(
      WriteTensors(golden, artifacts + "/gradients", client::kGradientTensors));
  return WriteTensors(golden, artifacts + "/parameters", client::kFinalTensors);
}

class GoldenFaultTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { ASSERT_OK(MakeReference()); }

  // Runs `weftctl golden` on workers with a fault; the worst tensor or step of
  // each check that does not hold.
  static std::map<std::string, std::string> BrokenBy(
      const char* fault, const char* compute = "fp32", int checks = 5) {
    setenv("WEFT_FAULT", fault, /*overwrite=*/1);
    const auto cluster = StartCluster("tests/faults/faulty_worker");
    EXPECT_OK(cluster);
    if (!cluster.ok()) return {};
    const std::string log =
        absl::StrCat(TestFolder(), "/golden", fault, compute, ".log");
    const auto golden = Subprocess::Start(
        {"client/weftctl", "--coordinator=" + (*cluster)->address(), "golden",
         ModelFolder(), "--work=" + TestFolder(), "--world=2", "--ep=2",
         "--microbatch=1", absl::StrCat("--compute=", compute),
         "--output=json"},
        log);
    EXPECT_OK(golden);
    if (!golden.ok()) return {};
    const std::optional<int> code = (*golden)->Wait(absl::Seconds(120));
    std::map<std::string, std::string> broken;
    int rows = 0;
    for (absl::string_view line : absl::StrSplit(ReadFile(log), '\n')) {
      const json row = json::parse(line.begin(), line.end(), nullptr, false);
      if (!row.is_object()) continue;
      ++rows;
      if (!row["holds"]) broken[row["check"]] = row["worst"];
    }
    EXPECT_EQ(rows, checks) << ReadFile(log);
    EXPECT_EQ(code, broken.empty() ? 0 : 1);
    return broken;
  }
};

TEST_F(GoldenFaultTest, WithoutAFaultEveryCheckHolds) {
  EXPECT_THAT(BrokenBy(""), IsEmpty());
}

TEST_F(GoldenFaultTest, DoubledExpertGradientsAreOffInTheirOwnTensors) {
  EXPECT_THAT(BrokenBy("expert_gradients"),
              AllOf(Contains(Pair("gradients", HasSubstr(".experts."))),
                    Contains(Key("gradient norms"))));
}

TEST_F(GoldenFaultTest, AClipThatIsOnePercentOffChangesParameters) {
  EXPECT_THAT(BrokenBy("clip"), AllOf(Contains(Key("change of parameters")),
                                      Not(Contains(Key("gradients")))));
}

TEST_F(GoldenFaultTest, DecayOnNormsChangesThem) {
  EXPECT_THAT(BrokenBy("decay"),
              AllOf(Contains(Pair("change of parameters", HasSubstr("norm"))),
                    Not(Contains(Key("gradients")))));
}

TEST_F(GoldenFaultTest, ABiasCorrectionThatIsAStepLateChangesParameters) {
  EXPECT_THAT(BrokenBy("bias_correction"),
              AllOf(Contains(Key("change of parameters")),
                    Not(Contains(Key("gradients")))));
}

TEST_F(GoldenFaultTest, InBf16BothChecksHold) {
  EXPECT_THAT(BrokenBy("", "bf16", 2), IsEmpty());
}

// Doubled they are 1.3% of all gradients of this model.
TEST_F(GoldenFaultTest, FivefoldExpertGradientsAreOffInBf16) {
  EXPECT_THAT(BrokenBy("expert_gradients_fivefold", "bf16", 2),
              Contains(Pair("all gradients in bf16", HasSubstr(".experts."))));
}

}  // namespace
}  // namespace weft::testing

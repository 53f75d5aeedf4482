// Which tokens count, end to end.
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/exec/testing/local_world.h"

namespace weft::exec {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::LocalWorld;
using testing::LocalWorldOptions;
using testing::MakeJob;
using testing::SyntheticSamples;
using testing::TinyJob;

absl::StatusOr<std::unique_ptr<LocalWorld>> World(
    const TinyJob& tiny, SyntheticSamples::Kind samples) {
  LocalWorldOptions options;
  options.job = MakeJob(tiny);
  options.samples = samples;
  return LocalWorld::Create(std::move(options));
}

TinyJob Masked() {
  TinyJob tiny;
  tiny.world = 2;
  tiny.microbatches = 3;
  tiny.router_losses = true;
  tiny.loss_mask = true;
  return tiny;
}

// What a step counts among its first samples.
int64_t Counted(int64_t samples, int64_t length) {
  SyntheticSamples source(29, SyntheticSamples::Kind::kRule);
  std::vector<int32_t> mask(length + 1);
  int64_t counted = 0;
  for (int64_t index = 0; index < samples; ++index) {
    EXPECT_OK(
        source.ReadMask(data::Split::kTrain, index, absl::MakeSpan(mask)));
    for (int64_t i = 1; i <= length; ++i) counted += mask[i];
  }
  return counted;
}

TEST(LossMaskTest, AStepTellsHowManyTokensCount) {
  TinyJob tiny = Masked();
  tiny.uneven = {2, 1, 3};
  ASSERT_OK_AND_ASSIGN(auto world, World(tiny, SyntheticSamples::Kind::kRule));
  ASSERT_OK_AND_ASSIGN(auto results, world->RunSteps(1));
  const v1::StepMetrics& metrics = results[0][0].metrics;
  const int64_t length = tiny.sequence_length;
  EXPECT_EQ(metrics.tokens(), 12 * length);
  EXPECT_EQ(metrics.loss_tokens(), Counted(12, length));
  EXPECT_LT(metrics.loss_tokens(), metrics.tokens());
}

TEST(LossMaskTest, AMaskThatLeavesNothingOutChangesNoBit) {
  for (bool token_loss : {false, true}) {
    TinyJob tiny = Masked();
    tiny.token_loss = token_loss;
    std::vector<std::map<std::string, std::vector<float>>> parameters;
    for (bool mask : {false, true}) {
      tiny.loss_mask = mask;
      ASSERT_OK_AND_ASSIGN(auto world,
                           World(tiny, SyntheticSamples::Kind::kConstant));
      ASSERT_OK(world->RunSteps(2));
      ASSERT_OK_AND_ASSIGN(parameters.emplace_back(), world->Parameters());
    }
    EXPECT_EQ(parameters[0], parameters[1]) << token_loss;
  }
}

TEST(LossMaskTest, AStepInWhichNoTokenCountsFails) {
  for (bool token_loss : {false, true}) {
    TinyJob tiny = Masked();
    tiny.token_loss = token_loss;
    ASSERT_OK_AND_ASSIGN(auto world,
                         World(tiny, SyntheticSamples::Kind::kIgnored));
    const absl::Status status = world->RunSteps(1).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(),
                AllOf(HasSubstr("step 1"), HasSubstr("data.loss_mask_prefix="),
                      HasSubstr("counts none of the 36 tokens")));
  }
}

TEST(LossMaskTest, ValidationIsTheMeanOverTokensThatCount) {
  std::vector<double> losses;
  for (int world_size : {1, 2}) {
    TinyJob tiny = Masked();
    tiny.world = world_size;
    tiny.sequences = 2 / world_size;
    tiny.eval_batches = 2;
    ASSERT_OK_AND_ASSIGN(auto world,
                         World(tiny, SyntheticSamples::Kind::kRule));
    std::vector<v1::EvalMetrics> metrics(world_size);
    ASSERT_OK(world->ForEachRank([&](int rank, Engine& engine) {
      ASSIGN_OR_RETURN(metrics[rank], engine.RunEval(2));
      return absl::OkStatus();
    }));
    EXPECT_EQ(metrics[0].tokens(), 2 * 6 * tiny.sequence_length);
    losses.push_back(metrics[0].loss());
  }
  EXPECT_NEAR(losses[0] / losses[1], 1, 2e-6);
  // Nothing is learned yet: the loss of a token is about log(29).
  EXPECT_NEAR(losses[0], 3.4, 1);
}

}  // namespace
}  // namespace weft::exec

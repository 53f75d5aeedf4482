// Runs in bf16 beside the same runs in fp32.
#include <memory>
#include <utility>
#include <vector>

#include "base/bf16.h"
#include "base/status_macros.h"
#include "base/status_matchers.h"
#include "gtest/gtest.h"
#include "worker/exec/testing/local_world.h"

namespace weft::exec {
namespace {

using testing::LocalWorld;
using testing::LocalWorldOptions;
using testing::MakeJob;
using testing::TinyJob;

constexpr int kSteps = 30;

TinyJob LearningJob() {
  TinyJob tiny;
  tiny.world = 2;
  tiny.ep = 2;
  tiny.microbatches = 3;
  tiny.sequences = 2;
  tiny.steps = kSteps;
  return tiny;
}

absl::StatusOr<std::unique_ptr<LocalWorld>> MakeWorld(const TinyJob& tiny) {
  LocalWorldOptions options;
  options.job = MakeJob(tiny);
  return LocalWorld::Create(std::move(options));
}

absl::StatusOr<std::vector<double>> Losses(const TinyJob& tiny) {
  ASSIGN_OR_RETURN(auto world, MakeWorld(tiny));
  ASSIGN_OR_RETURN(auto results, world->RunSteps(tiny.steps));
  std::vector<double> losses;
  for (const StepResult& step : results[0]) {
    losses.push_back(step.metrics.loss());
  }
  return losses;
}

// Gradients rounded to 8 bits, relative 2^-9 each, turn the direction of a step
// by far less than that: over so few steps losses stay within 1%.
TEST(PrecisionTest, WithBf16GradientsTheLossFallsAsWithFp32) {
  TinyJob tiny = LearningJob();
  ASSERT_OK_AND_ASSIGN(const std::vector<double> wide, Losses(tiny));
  tiny.gradients = v1::NUMBER_FORMAT_BF16;
  ASSERT_OK_AND_ASSIGN(const std::vector<double> narrow, Losses(tiny));
  EXPECT_EQ(narrow[0], wide[0]);  // before the first update
  EXPECT_NE(narrow[kSteps - 1], wide[kSteps - 1]);
  for (int i = 0; i < kSteps; ++i) {
    EXPECT_NEAR(narrow[i] / wide[i], 1, 0.01) << "step " << i + 1;
  }
  EXPECT_LT(narrow[kSteps - 1], 0.7 * narrow[0]);
}

// Rounding of parameters and activations moves a loss by some 0.1%, and turns a
// step a little; a token near the middle between two experts goes to the other.
TEST(PrecisionTest, InBf16TheLossFallsAsInFp32) {
  TinyJob tiny = LearningJob();
  ASSERT_OK_AND_ASSIGN(const std::vector<double> wide, Losses(tiny));
  tiny.compute = v1::NUMBER_FORMAT_BF16;
  for (const auto gradients :
       {v1::NUMBER_FORMAT_FP32, v1::NUMBER_FORMAT_BF16}) {
    tiny.gradients = gradients;
    ASSERT_OK_AND_ASSIGN(const std::vector<double> narrow, Losses(tiny));
    EXPECT_NE(narrow[0], wide[0]);
    EXPECT_NEAR(narrow[0] / wide[0], 1, 0.005);
    for (int i = 0; i < kSteps; ++i) {
      EXPECT_NEAR(narrow[i] / wide[i], 1, 0.05) << "step " << i + 1;
    }
    EXPECT_LT(narrow[kSteps - 1], 0.7 * narrow[0]);
  }
}

// A rate whose steps vanish in bf16: only the main weights keep them.
TEST(PrecisionTest, MainWeightsKeepWhatBf16WouldLose) {
  TinyJob tiny = LearningJob();
  tiny.compute = v1::NUMBER_FORMAT_BF16;
  for (const auto strategy : {v1::SHARDING_STRATEGY_NO_SHARD,
                              v1::SHARDING_STRATEGY_OPTIM_GRADS_PARAMS}) {
    tiny.strategy = strategy;
    ASSERT_OK_AND_ASSIGN(auto world, MakeWorld(tiny));
    ASSERT_OK_AND_ASSIGN(const auto before, world->Parameters());
    ASSERT_OK(world->RunSteps(1).status());
    ASSERT_OK_AND_ASSIGN(const auto after, world->Parameters());
    int64_t narrower = 0;
    int64_t elements = 0;
    for (const auto& [name, values] : after) {
      EXPECT_NE(values, before.at(name)) << name;
      for (float value : values) narrower += ToFloat(ToBf16(value)) == value;
      elements += values.size();
    }
    EXPECT_LT(narrower, elements / 10);
  }
}

}  // namespace
}  // namespace weft::exec

#include "worker/exec/fragment_file.h"

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/bf16.h"
#include "base/status_matchers.h"
#include "checkpoint/format/safetensors_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/exec/testing/local_world.h"

namespace weft::exec {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::LocalWorld;
using testing::LocalWorldOptions;
using testing::MakeJob;
using ::testing::Pair;
using testing::TinyJob;

using Tensors = std::map<std::string, std::vector<float>>;

constexpr v1::ShardingStrategy kStrategies[] = {
    v1::SHARDING_STRATEGY_NO_SHARD, v1::SHARDING_STRATEGY_OPTIM,
    v1::SHARDING_STRATEGY_OPTIM_GRADS,
    v1::SHARDING_STRATEGY_OPTIM_GRADS_PARAMS};

std::unique_ptr<LocalWorld> MakeWorld(const TinyJob& tiny,
                                      double clip_norm = 1.0) {
  LocalWorldOptions options;
  options.job = MakeJob(tiny);
  options.job.mutable_optimizer()->set_clip_norm(clip_norm);
  auto world = LocalWorld::Create(std::move(options));
  EXPECT_OK(world.status());
  return *std::move(world);
}

double NormOf(const Tensors& tensors) {
  double squares = 0;
  for (const auto& [name, values] : tensors) {
    for (float value : values) squares += static_cast<double>(value) * value;
  }
  return std::sqrt(squares);
}

// World size and EP size.
class GradientsTest : public ::testing::TestWithParam<std::tuple<int, int>> {
 protected:
  // The gradients of the second step, of which the first has changed the
  // weights. Their norm must be the one the step reports.
  Tensors Gradients(int microbatches, v1::ShardingStrategy strategy) {
    TinyJob tiny;
    std::tie(tiny.world, tiny.ep) = GetParam();
    tiny.microbatches = microbatches;
    tiny.strategy = strategy;
    const std::unique_ptr<LocalWorld> world = MakeWorld(tiny, 0.01);
    const auto results = world->RunSteps(2);
    EXPECT_OK(results.status());
    const auto gradients = world->Gradients();
    EXPECT_OK(gradients.status());
    const double norm = (*results)[0][1].metrics.grad_norm();
    EXPECT_GT(norm, 0.01);  // it was clipped
    EXPECT_NEAR(NormOf(*gradients) / norm, 1, 1e-12)
        << v1::ShardingStrategy_Name(strategy);
    return *gradients;
  }
};

TEST_P(GradientsTest, OfOneMicrobatchAreEqualInAllStrategies) {
  const Tensors expected = Gradients(1, v1::SHARDING_STRATEGY_NO_SHARD);
  for (const auto strategy : kStrategies) {
    EXPECT_EQ(Gradients(1, strategy), expected)
        << v1::ShardingStrategy_Name(strategy);
  }
}

TEST_P(GradientsTest, OfTwoMicrobatchesHaveTheNormOfTheStep) {
  for (const auto strategy : kStrategies) Gradients(2, strategy);
}

INSTANTIATE_TEST_SUITE_P(Worlds, GradientsTest,
                         ::testing::Values(std::tuple(1, 1), std::tuple(2, 1),
                                           std::tuple(2, 2), std::tuple(4, 2)),
                         [](const auto& info) {
                           return absl::StrCat("World", std::get<0>(info.param),
                                               "Ep", std::get<1>(info.param));
                         });

// What a file holds of gradients in bf16 are their values in fp32.
TEST(FragmentFileTest, Bf16GradientsAreWidened) {
  TinyJob tiny;
  tiny.world = 2;
  tiny.gradients = v1::NUMBER_FORMAT_BF16;
  const std::unique_ptr<LocalWorld> world = MakeWorld(tiny);
  ASSERT_OK_AND_ASSIGN(const auto results, world->RunSteps(1));
  ASSERT_OK_AND_ASSIGN(const Tensors gradients, world->Gradients());
  EXPECT_NEAR(NormOf(gradients) / results[0][0].metrics.grad_norm(), 1, 1e-12);
  for (const auto& [name, values] : gradients) {
    for (float value : values) EXPECT_EQ(ToFloat(ToBf16(value)), value) << name;
  }
}

TEST(FragmentFileTest, AValidationLeavesTheGradients) {
  TinyJob tiny;
  tiny.world = 2;
  tiny.eval_batches = 1;
  const std::unique_ptr<LocalWorld> world = MakeWorld(tiny);
  ASSERT_OK(world->RunSteps(1).status());
  ASSERT_OK_AND_ASSIGN(const Tensors before, world->Gradients());
  ASSERT_OK(world->ForEachRank(
      [](int, Engine& engine) { return engine.RunEval(1).status(); }));
  EXPECT_THAT(world->Gradients(), IsOkAndHolds(before));
}

TEST(FragmentFileTest, GradientsBeforeAStepAreRefused) {
  const std::unique_ptr<LocalWorld> world = MakeWorld({});
  EXPECT_THAT(world->engine(0).WriteGradients(::testing::TempDir()),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("before a step")));
}

TEST(FragmentFileTest, TheMetadataSaysRankWorldAndStepOfGradients) {
  TinyJob tiny;
  tiny.world = 2;
  const std::unique_ptr<LocalWorld> world = MakeWorld(tiny);
  ASSERT_OK(world->RunSteps(2).status());
  const std::string folder = ::testing::TempDir();
  const std::string path = absl::StrCat(folder, "/rank-00001.safetensors");
  ASSERT_OK(world->engine(1).WriteGradients(folder));
  ASSERT_OK_AND_ASSIGN(const auto gradients,
                       checkpoint::SafetensorsFile::Open(path));
  EXPECT_THAT(
      gradients.metadata(),
      ElementsAre(Pair("rank", "1"), Pair("step", "2"), Pair("world", "2")));
  ASSERT_OK(world->engine(1).WriteParameters(folder));
  ASSERT_OK_AND_ASSIGN(const auto weights,
                       checkpoint::SafetensorsFile::Open(path));
  EXPECT_THAT(weights.metadata(),
              ElementsAre(Pair("rank", "1"), Pair("world", "2")));
}

}  // namespace
}  // namespace weft::exec

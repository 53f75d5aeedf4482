#include <cmath>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/exec/testing/local_world.h"

namespace weft::exec {
namespace {

using testing::LocalWorld;
using testing::LocalWorldOptions;
using testing::MakeJob;
using testing::TinyJob;

TEST(EngineTest, TrainingReducesTheLoss) {
  TinyJob tiny;
  tiny.world = 2;
  tiny.ep = 2;
  tiny.microbatches = 2;
  tiny.sequences = 2;
  tiny.steps = 60;
  LocalWorldOptions options;
  options.job = MakeJob(tiny);
  ASSERT_OK_AND_ASSIGN(auto world, LocalWorld::Create(std::move(options)));
  ASSERT_OK_AND_ASSIGN(auto results, world->RunSteps(tiny.steps));
  const double first = results[0].front().metrics.loss();
  const double last = results[0].back().metrics.loss();
  EXPECT_NEAR(first, std::log(29.0), 1.0);
  EXPECT_LT(last, 0.3 * first);
  EXPECT_EQ(results[1].back().metrics.loss(), last);
}

}  // namespace
}  // namespace weft::exec

#include "schedule/replay.h"

#include <string>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "schedule/plan.h"
#include "schedule/testing/jobs.h"
#include "schedule/verifier.h"

namespace weft::schedule {
namespace {

using ::testing::HasSubstr;

TEST(ReplayTest, IsTheStepWithoutItsOptimizer) {
  for (const auto strategy : {v1::SHARDING_STRATEGY_NO_SHARD,
                              v1::SHARDING_STRATEGY_OPTIM_GRADS_PARAMS}) {
    v1::TrainingJob job = SmallJob({2, 3, 4, 2});
    job.mutable_fsdp()->set_strategy(strategy);
    ASSERT_OK_AND_ASSIGN(const Plan plan, Compile(job));
    const Program replay = ReplayOf(plan.train);
    EXPECT_OK(VerifyProgram(replay, plan.model, plan.units));
    EXPECT_EQ(replay.ops.size(),
              plan.train.ops.size() - plan.units.buckets.size());
    EXPECT_EQ(CollectiveHash(replay, plan.model, plan.units),
              CollectiveHash(plan.train, plan.model, plan.units));
    EXPECT_THAT(ToText(plan, replay), HasSubstr("replay: 3 microbatches"));
  }
}

TEST(ReplayTest, OpsBehindAnOptimizerWaitForTheSame) {
  ASSERT_OK_AND_ASSIGN(Plan plan, Compile(SmallJob({2, 2, 2, 2})));
  const size_t buckets = plan.units.buckets.size();
  Program& train = plan.train;
  // A wait for the op before the optimizer and one for its last.
  Op op = train.ops.front();
  const int control = train.ops.size() - buckets - 1;
  ASSERT_EQ(train.ops[control].kind, OpKind::kControl);
  op.waits = {control, static_cast<int>(train.ops.size()) - 1};
  train.ops.push_back(op);
  const Program replay = ReplayOf(train);
  EXPECT_THAT(replay.ops.back().waits, ::testing::ElementsAre(control));
}

TEST(ReplayTest, AnOptimizerHasNoPlaceInAReplay) {
  ASSERT_OK_AND_ASSIGN(const Plan plan, Compile(SmallJob({2, 2, 2, 2})));
  Program replay = plan.train;
  replay.kind = ProgramKind::kReplay;
  EXPECT_THAT(VerifyProgram(replay, plan.model, plan.units),
              StatusIs(absl::StatusCode::kInternal,
                       HasSubstr("optimizes in a program of a replay")));
}

}  // namespace
}  // namespace weft::schedule

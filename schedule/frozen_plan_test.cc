// Plans of jobs with frozen parameters.
#include <set>
#include <string>
#include <vector>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "schedule/plan.h"
#include "schedule/testing/jobs.h"
#include "schedule/verifier.h"

namespace weft::schedule {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr v1::ShardingStrategy kStrategies[] = {
    v1::SHARDING_STRATEGY_NO_SHARD, v1::SHARDING_STRATEGY_OPTIM,
    v1::SHARDING_STRATEGY_OPTIM_GRADS,
    v1::SHARDING_STRATEGY_OPTIM_GRADS_PARAMS};

v1::TrainingJob FrozenJob(
    const std::vector<std::string>& patterns,
    v1::ShardingStrategy strategy = v1::SHARDING_STRATEGY_OPTIM_GRADS_PARAMS) {
  v1::TrainingJob job = SmallJob({3, 2, 4, 2});
  job.mutable_fsdp()->set_strategy(strategy);
  if (patterns.empty()) return job;
  v1::ParameterGroup& group = *job.mutable_optimizer()->add_groups();
  for (const std::string& pattern : patterns) group.add_parameters(pattern);
  group.set_frozen(true);
  return job;
}

bool IsFrozen(const Plan& plan, int bucket) {
  return plan.units.buckets[bucket].frozen;
}

TEST(FrozenPlanTest, FrozenBucketsAreGatheredAndNothingElse) {
  for (const auto strategy : kStrategies) {
    ASSERT_OK_AND_ASSIGN(
        const Plan plan,
        Compile(FrozenJob({"*.qkv", "layers.0.*", "embedding.*"}, strategy)));
    std::set<int> reduced;
    std::set<int> gathered;
    for (const Op& op : plan.train.ops) {
      if (op.kind == OpKind::kReduce || op.kind == OpKind::kAdd ||
          op.kind == OpKind::kOptimizer) {
        EXPECT_FALSE(IsFrozen(plan, op.bucket));
        reduced.insert(op.bucket);
      }
      if (op.kind == OpKind::kGather) gathered.insert(op.bucket);
      for (const GradUse& use : op.grads) {
        EXPECT_FALSE(plan.model.params[use.param].frozen);
      }
    }
    size_t frozen = 0;
    for (const fsdp::Bucket& bucket : plan.units.buckets) {
      frozen += bucket.frozen;
      EXPECT_EQ(reduced.count(bucket.id), bucket.frozen ? 0 : 1);
      if (strategy == v1::SHARDING_STRATEGY_NO_SHARD) continue;
      EXPECT_EQ(gathered.count(bucket.id), 1);
    }
    EXPECT_EQ(frozen, 5);  // root, two of layer 0, layers 1 and 2
    for (const Value& value : plan.train.values) {
      if (value.kind == ValueKind::kGradient) {
        EXPECT_FALSE(IsFrozen(plan, value.bucket));
      }
    }
  }
}

TEST(FrozenPlanTest, MemoryHoldsNoGradientsOrMomentsOfThem) {
  for (const auto strategy : kStrategies) {
    const auto state = [&](const std::vector<std::string>& patterns) {
      return Summarize(*Compile(FrozenJob(patterns, strategy))).state_bytes();
    };
    // All but the norm of the head: a sixteenth of one padded slice is left.
    const int64_t most = state({"embedding.*", "layers.*", "head.output"});
    if (strategy == v1::SHARDING_STRATEGY_NO_SHARD) {
      EXPECT_LT(most, state({}) / 3);
    } else {
      EXPECT_LT(most, state({}) * 2 / 3);
    }
  }
}

TEST(FrozenPlanTest, TheBackwardEndsAtTheFirstThatLearns) {
  ASSERT_OK_AND_ASSIGN(
      const Plan plan,
      Compile(FrozenJob({"embedding.*", "layers.0.*", "layers.1.*"})));
  for (const Op& op : plan.train.ops) {
    if (op.kind != OpKind::kNode || op.phase == model::Phase::kForward) {
      continue;
    }
    EXPECT_GE(op.layer, 3) << plan.model.layers[op.layer].name;
  }
}

TEST(FrozenPlanTest, TheTextTellsFrozenBucketsApart) {
  ASSERT_OK_AND_ASSIGN(const Plan plan, Compile(FrozenJob({"*.qkv"})));
  const std::string text = ToText(plan, plan.train);
  EXPECT_THAT(text, HasSubstr("gather layers.1.dp.frozen"));
  EXPECT_THAT(text, HasSubstr("gather layers.1.dp "));
  EXPECT_THAT(text, Not(HasSubstr("reduce layers.1.dp.frozen")));
}

class BrokenFrozenTest : public ::testing::Test {
 protected:
  BrokenFrozenTest() : plan_(*Compile(FrozenJob({"*.qkv"}))) {
    for (const fsdp::Bucket& bucket : plan_.units.buckets) {
      if (bucket.frozen) frozen_ = bucket.id;
    }
  }

  void ExpectBroken(const std::string& detail) {
    EXPECT_THAT(VerifyProgram(plan_.train, plan_.model, plan_.units),
                StatusIs(absl::StatusCode::kInternal, HasSubstr(detail)));
  }

  Plan plan_;
  int frozen_ = -1;
};

TEST_F(BrokenFrozenTest, RejectsAnOptimizerOfAFrozenBucket) {
  Op op;
  op.kind = OpKind::kOptimizer;
  op.bucket = frozen_;
  plan_.train.ops.push_back(op);
  ExpectBroken("optimizer of bucket " + std::to_string(frozen_) +
               ", which is frozen");
}

TEST_F(BrokenFrozenTest, RejectsAReductionOfAFrozenBucket) {
  for (Op& op : plan_.train.ops) {
    if (op.kind != OpKind::kReduce) continue;
    op.bucket = frozen_;
    break;
  }
  ExpectBroken("reduce of bucket " + std::to_string(frozen_));
}

TEST_F(BrokenFrozenTest, RejectsAGradientOfAFrozenBucket) {
  for (Value& value : plan_.train.values) {
    if (value.kind == ValueKind::kGradient) value.bucket = frozen_;
  }
  ExpectBroken("a gradient of bucket " + std::to_string(frozen_));
}

}  // namespace
}  // namespace weft::schedule

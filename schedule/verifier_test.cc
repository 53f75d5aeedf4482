#include "schedule/verifier.h"

#include <functional>
#include <string>
#include <vector>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "schedule/plan.h"
#include "schedule/testing/jobs.h"

namespace weft::schedule {
namespace {

using ::testing::HasSubstr;

Plan CompiledPlan(
    v1::ShardingStrategy strategy = v1::SHARDING_STRATEGY_OPTIM_GRADS_PARAMS) {
  v1::TrainingJob job = SmallJob({2, 3, 4, 2});
  job.mutable_schedule()->set_delay_wgrad(true);
  job.mutable_model()->set_tie_embeddings(true);
  job.mutable_fsdp()->set_strategy(strategy);
  return *Compile(job);
}

// The first op that `pred` accepts.
int Find(const Plan& plan, const std::function<bool(const Op&)>& pred) {
  for (int id = 0; id < plan.train.ops.size(); ++id) {
    if (pred(plan.train.ops[id])) return id;
  }
  ADD_FAILURE() << "no such op";
  return 0;
}

int FindNode(const Plan& plan, model::NodeKind kind, model::Phase phase) {
  return Find(plan, [&](const Op& op) {
    return op.kind == OpKind::kNode && op.phase == phase &&
           plan.model.node(op.layer, op.node).kind == kind;
  });
}

int FindKind(const Plan& plan, OpKind kind) {
  return Find(plan, [&](const Op& op) { return op.kind == kind; });
}

void ExpectBroken(const Plan& plan, const std::string& proof,
                  const std::string& detail) {
  const absl::Status status = VerifyProgram(plan.train, plan.model, plan.units);
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInternal,
                               HasSubstr("plan is broken: " + proof)));
  EXPECT_THAT(std::string(status.message()), HasSubstr(detail));
}

TEST(VerifierTest, AcceptsWhatTheCompilerMakes) {
  const Plan plan = CompiledPlan();
  EXPECT_OK(VerifyProgram(plan.train, plan.model, plan.units));
}

TEST(VerifierTest, RejectsAReaderThatDoesNotWaitForItsGather) {
  Plan plan = CompiledPlan();
  const int id = Find(plan, [&](const Op& op) {
    for (int wait : op.waits) {
      if (plan.train.ops[wait].kind == OpKind::kGather) return true;
    }
    return false;
  });
  std::vector<int>& waits = plan.train.ops[id].waits;
  for (int i = 0; i < waits.size(); ++i) {
    if (plan.train.ops[waits[i]].kind == OpKind::kGather) {
      waits.erase(waits.begin() + i--);
    }
  }
  ExpectBroken(plan, "residency", absl::StrCat("op ", id));
}

TEST(VerifierTest, RejectsAReleaseThatDoesNotWaitForItsReader) {
  Plan plan = CompiledPlan();
  const int id = FindKind(plan, OpKind::kRelease);
  plan.train.ops[id].waits.clear();
  ExpectBroken(plan, "residency", "may have released its bucket");
}

TEST(VerifierTest, RejectsABucketThatIsNeverReleased) {
  Plan plan = CompiledPlan();
  Op& op = plan.train.ops[FindKind(plan, OpKind::kRelease)];
  op.kind = OpKind::kGather;
  op.args = {static_cast<int>(plan.train.values.size())};
  plan.train.values.push_back(plan.train.values[0]);
  Value& value = plan.train.values.back();
  value.kind = ValueKind::kGathered;
  value.bucket = op.bucket;
  value.bytes = plan.units.buckets[op.bucket].elements * 4;
  ExpectBroken(plan, "residency", "is never released");
}

TEST(VerifierTest, RejectsAMissingReduction) {
  Plan plan = CompiledPlan();
  plan.train.ops[FindKind(plan, OpKind::kReduce)].bucket = 1;
  ExpectBroken(plan, "shape", "uses a value of something else");
}

TEST(VerifierTest, RejectsAReductionAheadOfItsLastWriter) {
  Plan plan = CompiledPlan();
  const int id = Find(plan, [](const Op& op) {
    return op.kind == OpKind::kReduce && !op.waits.empty();
  });
  plan.train.ops[id].waits.clear();
  ExpectBroken(plan, "gradients", absl::StrCat("op ", id));
}

TEST(VerifierTest, RejectsAReductionThatForgetsEarlierMicrobatches) {
  Plan plan = CompiledPlan();
  const int id = Find(plan, [](const Op& op) {
    return op.kind == OpKind::kReduce && op.microbatch == 1;
  });
  plan.train.ops[id].accumulate = false;
  ExpectBroken(plan, "gradients", "overwrites the shard");
}

TEST(VerifierTest, RejectsATiedGradientThatOverwritesTheOther) {
  Plan plan = CompiledPlan();
  const int id =
      FindNode(plan, model::NodeKind::kEmbedding, model::Phase::kWgrad);
  plan.train.ops[id].grads[0].accumulate = false;
  ExpectBroken(plan, "gradients", "overwrites the gradient of embedding.table");
}

TEST(VerifierTest, RejectsAResidentGradientReducedEveryMicrobatch) {
  Plan plan = CompiledPlan(v1::SHARDING_STRATEGY_NO_SHARD);
  const int id = FindKind(plan, OpKind::kReduce);
  plan.train.ops[id].microbatch = 0;
  ExpectBroken(plan, "gradients", "before the last microbatch");
}

TEST(VerifierTest, RejectsATiedGradientAddedAheadOfItsLastWriter) {
  Plan plan = CompiledPlan(v1::SHARDING_STRATEGY_NO_SHARD);
  const int id = FindKind(plan, OpKind::kAdd);
  plan.train.ops[id].waits.clear();
  ExpectBroken(plan, "gradients", absl::StrCat("op ", id, ": add of bucket"));
}

TEST(VerifierTest, RejectsATiedGradientThatForgetsEarlierMicrobatches) {
  Plan plan = CompiledPlan(v1::SHARDING_STRATEGY_NO_SHARD);
  const int id = Find(plan, [](const Op& op) {
    return op.kind == OpKind::kAdd && op.microbatch == 1;
  });
  plan.train.ops[id].accumulate = false;
  ExpectBroken(plan, "gradients", "overwrites the resident gradients");
}

TEST(VerifierTest, RejectsATiedGradientThatIsAddedTwice) {
  Plan plan = CompiledPlan(v1::SHARDING_STRATEGY_NO_SHARD);
  const int id = Find(plan, [](const Op& op) {
    return op.kind == OpKind::kAdd && op.microbatch == 1;
  });
  plan.train.ops[id].microbatch = 0;
  ExpectBroken(plan, "gradients", "a second time for microbatch 0");
}

TEST(VerifierTest, RejectsAnAddOfGradientsThatNeedNone) {
  Plan plan = CompiledPlan();
  const int id = FindKind(plan, OpKind::kReduce);
  plan.train.ops[id].kind = OpKind::kAdd;
  ExpectBroken(plan, "shape", "need no adding");
}

TEST(VerifierTest, RejectsAnOptimizerAheadOfTheNorm) {
  Plan plan = CompiledPlan();
  const int id = FindKind(plan, OpKind::kOptimizer);
  plan.train.ops[id].waits.clear();
  ExpectBroken(plan, "gradients", "optimizes before the control op");
}

TEST(VerifierTest, RejectsAReadAheadOfItsWrite) {
  // Resident weights, so that nothing but the rows is waited for.
  Plan plan = CompiledPlan(v1::SHARDING_STRATEGY_NO_SHARD);
  const int id =
      FindNode(plan, model::NodeKind::kExperts, model::Phase::kForward);
  plan.train.ops[id].waits.clear();
  ExpectBroken(plan, "values", absl::StrCat("op ", id, ": reads value"));
}

TEST(VerifierTest, RejectsMemoryTakenFromALiveValue) {
  Plan plan = CompiledPlan();
  const int writer =
      FindNode(plan, model::NodeKind::kPreDispatch, model::Phase::kForward);
  const Op& op = plan.train.ops[writer];
  // The second saved value onto the first one.
  plan.train.values[op.args[2]].offset = plan.train.values[op.args[1]].offset;
  ExpectBroken(plan, "values", "takes the memory of value");
}

TEST(VerifierTest, RejectsAHostReadNobodyWaitedFor) {
  Plan plan = CompiledPlan();
  const int id = FindKind(plan, OpKind::kHostWait);
  const Op wait = plan.train.ops[id];
  // Another microbatch's wait in its place: as many waits, the wrong value.
  const int other = Find(plan, [&](const Op& op) {
    return op.kind == OpKind::kHostWait && op.args != wait.args;
  });
  plan.train.ops[other].args = wait.args;
  ExpectBroken(plan, "values", "has not waited for");
}

TEST(VerifierTest, RejectsAPhaseThatRunsTwiceOrOnTheWrongStream) {
  Plan plan = CompiledPlan();
  const int id =
      FindNode(plan, model::NodeKind::kDispatch, model::Phase::kForward);
  plan.train.ops[id].stream = StreamKind::kCompute;
  ExpectBroken(plan, "shape", "runs on stream compute");
  plan = CompiledPlan();
  plan.train.ops[id + 1] = plan.train.ops[id];
  plan.train.ops[id + 1].waits.clear();
  ExpectBroken(plan, "coverage", "a second time");
}

TEST(VerifierTest, RejectsAWaitOnALaterOp) {
  Plan plan = CompiledPlan();
  plan.train.ops[3].waits = {7};
  ExpectBroken(plan, "shape", "waits for op 7");
}

}  // namespace
}  // namespace weft::schedule

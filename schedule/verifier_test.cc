#include "schedule/verifier.h"

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "schedule/plan.h"
#include "schedule/testing/jobs.h"
#include "schedule/testing/mutants.h"
#include "schedule/verifier_proofs.h"

namespace weft::schedule {
namespace {

using ::testing::HasSubstr;

v1::TrainingJob TiedJob(v1::ShardingStrategy strategy) {
  v1::TrainingJob job = SmallJob({2, 3, 4, 2});
  job.mutable_schedule()->set_delay_wgrad(true);
  job.mutable_model()->set_tie_embeddings(true);
  job.mutable_fsdp()->set_strategy(strategy);
  return job;
}

Plan CompiledPlan(
    v1::ShardingStrategy strategy = v1::SHARDING_STRATEGY_OPTIM_GRADS_PARAMS) {
  return *Compile(TiedJob(strategy));
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

TEST(VerifierTest, RejectsAnyMissingOp) {
  for (auto strategy : {v1::SHARDING_STRATEGY_NO_SHARD,
                        v1::SHARDING_STRATEGY_OPTIM_GRADS_PARAMS}) {
    const Plan plan = CompiledPlan(strategy);
    for (int id = 0; id < plan.train.ops.size(); ++id) {
      Program program = plan.train;
      DropOp(program, id, /*inherit=*/false);
      EXPECT_THAT(VerifyProgram(program, plan.model, plan.units),
                  StatusIs(absl::StatusCode::kInternal))
          << "without op " << id;
    }
  }
}

// The compiler makes no wait that another implies, so without one of them some
// order is not proved. Waits that only bound the memory of gradients in flight
// are left out here by an endless budget.
TEST(VerifierTest, RejectsAnyMissingWait) {
  for (auto strategy : {v1::SHARDING_STRATEGY_NO_SHARD,
                        v1::SHARDING_STRATEGY_OPTIM_GRADS_PARAMS}) {
    v1::TrainingJob job = TiedJob(strategy);
    job.mutable_fsdp()->set_reduce_bytes(int64_t{1} << 40);
    ASSERT_OK_AND_ASSIGN(const Plan plan, Compile(job));
    for (int id = 0; id < plan.train.ops.size(); ++id) {
      for (int i = 0; i < plan.train.ops[id].waits.size(); ++i) {
        Program program = plan.train;
        program.ops[id].waits.erase(program.ops[id].waits.begin() + i);
        EXPECT_THAT(VerifyProgram(program, plan.model, plan.units),
                    StatusIs(absl::StatusCode::kInternal))
            << "op " << id << " without its wait for "
            << plan.train.ops[id].waits[i];
      }
    }
  }
}

TEST(VerifierTest, RejectsAMissingReduction) {
  Plan plan = CompiledPlan();
  DropOp(plan.train, FindKind(plan, OpKind::kReduce), /*inherit=*/false);
  ExpectBroken(plan, "gradients", "before the one ahead of it");
}

TEST(VerifierTest, RejectsAReductionOfAnotherBucket) {
  Plan plan = CompiledPlan();
  plan.train.ops[FindKind(plan, OpKind::kReduce)].bucket = 1;
  ExpectBroken(plan, "shape", "uses a value of something else");
}

// Two values of one bucket and microbatch: what is written to the one that is
// not reduced would be lost.
TEST(VerifierTest, RejectsAGradientThatNoReductionCollects) {
  for (auto strategy : {v1::SHARDING_STRATEGY_NO_SHARD,
                        v1::SHARDING_STRATEGY_OPTIM_GRADS_PARAMS}) {
    Plan plan = CompiledPlan(strategy);
    const int id = FindNode(plan, model::NodeKind::kHead, model::Phase::kWgrad);
    GradUse& use = plan.train.ops[id].grads[0];
    Value stray = plan.train.values[use.value];
    stray.offset = plan.train.arena_bytes;
    plan.train.arena_bytes += stray.bytes;
    use.value = plan.train.values.size();
    plan.train.values.push_back(stray);
    ExpectBroken(plan, "gradients", absl::StrCat("to value ", use.value));
  }
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

TEST(VerifierTest, RejectsASecondHostWaitInPlaceOfAnother) {
  Plan plan = CompiledPlan();
  const Op wait = plan.train.ops[FindKind(plan, OpKind::kHostWait)];
  const int other = Find(plan, [&](const Op& op) {
    return op.kind == OpKind::kHostWait && op.args != wait.args;
  });
  plan.train.ops[other] = wait;
  ExpectBroken(plan, "coverage", "waits for a node phase a second time");
}

TEST(VerifierTest, RejectsAHostWaitForAnythingButTheNodeItNames) {
  const Plan plan = CompiledPlan();
  const int id = FindKind(plan, OpKind::kHostWait);
  Plan broken = plan;
  broken.train.ops[id].layer = 1000;
  ExpectBroken(broken, "shape", "names no node");
  broken = plan;
  broken.train.ops[id].microbatch ^= 1;
  ExpectBroken(broken, "shape", "is not the node it names");
  broken = plan;
  broken.train.ops[id].args[0] = broken.train.ops[0].args[0];
  ExpectBroken(broken, "shape", "is no host value");
}

TEST(VerifierTest, RejectsAControlOpThatReadsNoLosses) {
  const Plan plan = CompiledPlan();
  const int id = FindKind(plan, OpKind::kControl);
  Plan broken = plan;
  broken.train.ops[id].args[1] = broken.train.ops[0].args[0];
  ExpectBroken(broken, "shape", "is not head.loss of microbatch 1");
  broken = plan;
  broken.train.ops[id].stream = StreamKind::kGather;
  ExpectBroken(broken, "shape", "control on stream gather");
}

TEST(VerifierTest, RejectsParametersAndBucketsOnOpsThatHaveNone) {
  const Plan plan = CompiledPlan();
  Plan broken = plan;
  broken.train.ops[FindKind(plan, OpKind::kGather)].params = {{1 << 30, 0}};
  ExpectBroken(broken, "shape", "gather names parameters");
  broken = plan;
  broken.train.ops[FindKind(plan, OpKind::kOptimizer)].grads = {{1 << 30, -1}};
  ExpectBroken(broken, "shape", "optimizer names parameters");
  broken = plan;
  broken.train.ops[FindKind(plan, OpKind::kNode)].bucket = 1 << 30;
  ExpectBroken(broken, "shape", "node names bucket");
  broken = plan;
  broken.train.ops[FindKind(plan, OpKind::kReduce)].bucket = -1;
  ExpectBroken(broken, "shape", "reduce names bucket -1");
}

TEST(VerifierTest, RejectsAGatherOfWhatEveryRankHolds) {
  Plan plan = CompiledPlan();
  plan.train.strategy = fsdp::Strategy::kNoShard;
  ExpectBroken(plan, "shape", "which every rank holds");
}

TEST(VerifierTest, RejectsAValueThatIsNotWhatItsKindNames) {
  const Plan plan = CompiledPlan();
  const int gathered = plan.train.ops[FindKind(plan, OpKind::kGather)].args[0];
  Plan broken = plan;
  broken.train.values[gathered].space = model::Space::kHost;
  ExpectBroken(broken, "shape", "in the wrong space");
  broken = plan;
  broken.train.values[gathered].bytes -= 64;
  ExpectBroken(broken, "shape", absl::StrCat("value ", gathered, " has "));
  broken = plan;
  broken.train.values[gathered].bucket = 1 << 30;
  ExpectBroken(broken, "shape", "does not exist");
  broken = plan;
  Value unused;
  unused.decl = 1 << 30;
  broken.train.values.push_back(unused);
  ExpectBroken(broken, "shape", "is no declared value");
}

TEST(VerifierTest, RejectsAGradientAsWideAsTheWeights) {
  v1::TrainingJob job = TiedJob(v1::SHARDING_STRATEGY_OPTIM_GRADS_PARAMS);
  job.mutable_precision()->set_gradients(v1::NUMBER_FORMAT_BF16);
  Plan plan = *Compile(job);
  for (Value& value : plan.train.values) {
    if (value.kind != ValueKind::kGradient) continue;
    value.bytes *= 2;
    break;
  }
  ExpectBroken(plan, "shape", "bytes of");
}

TEST(VerifierTest, RejectsMemoryThatIsNoPlaceInTheArena) {
  const Plan plan = CompiledPlan();
  Plan broken = plan;
  broken.train.values[0].offset = broken.train.arena_bytes;
  ExpectBroken(broken, "values", "exceeds the arena");
  broken = plan;
  broken.train.values[0].offset += 4;
  broken.train.arena_bytes += 4;
  ExpectBroken(broken, "values", "no multiple of 64");
  broken = plan;
  broken.train.arena_bytes = std::numeric_limits<int64_t>::min();
  ExpectBroken(broken, "values", "arenas of -");
}

// As many phases as there are forwards, one of them a wgrad.
TEST(VerifierTest, RejectsAValidationProgramThatWritesGradients) {
  v1::TrainingJob job = TiedJob(v1::SHARDING_STRATEGY_NO_SHARD);
  job.mutable_eval()->set_batches(1);
  Plan plan = *Compile(job);
  Op wgrad = plan.train.ops[FindNode(plan, model::NodeKind::kEmbedding,
                                     model::Phase::kWgrad)];
  plan.train = *plan.eval;
  const int id = FindNode(plan, model::NodeKind::kLoss, model::Phase::kForward);
  Op& op = plan.train.ops[id];
  op.layer = wgrad.layer;
  op.node = wgrad.node;
  op.phase = wgrad.phase;
  op.args.clear();
  for (const model::Arg& arg :
       plan.model.node(op.layer, op.node).Find(op.phase)->args) {
    Value value;
    value.decl = arg.value;
    value.microbatch = op.microbatch;
    value.bytes = plan.model.values[arg.value].max_bytes();
    op.args.push_back(plan.train.values.size());
    plan.train.values.push_back(value);
  }
  Value gradient;
  gradient.kind = ValueKind::kGradient;
  gradient.bucket = plan.units.bucket_of_param[wgrad.grads[0].param];
  gradient.microbatch = op.microbatch;
  gradient.bytes = plan.units.buckets[gradient.bucket].elements * 4;
  op.grads = {{wgrad.grads[0].param, static_cast<int>(plan.train.values.size()),
               false}};
  plan.train.values.push_back(gradient);
  ExpectBroken(plan, "coverage", "in a program of forwards");
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

// Of a program whose shape is sound the order of its ops is an order of the
// joint graph; the proof itself does not lean on that.
TEST(ProveAgreementTest, FindsACycle) {
  Plan plan = CompiledPlan();
  const Subject subject{
      plan.train, plan.model, plan.units,
      GradientPaths(plan.model, plan.units, plan.train.strategy,
                    plan.train.microbatches)};
  EXPECT_OK(ProveAgreement(subject));
  // Across streams: dispatch waits for the experts, which wait for it.
  const int dispatch =
      FindNode(plan, model::NodeKind::kDispatch, model::Phase::kForward);
  const int experts =
      FindNode(plan, model::NodeKind::kExperts, model::Phase::kForward);
  plan.train.ops[dispatch].waits.push_back(experts);
  EXPECT_THAT(ProveAgreement(subject),
              StatusIs(absl::StatusCode::kInternal,
                       HasSubstr("waits, in the end, for itself")));
}

}  // namespace
}  // namespace weft::schedule

// Broken plans, one or more for each proof the design lists. Every rejection
// names the proof and the ops.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "schedule/plan.h"
#include "schedule/testing/jobs.h"
#include "schedule/testing/mutants.h"
#include "schedule/verifier.h"

namespace weft::schedule {
namespace {

using model::NodeKind;
using model::Phase;
using ::testing::AllOf;
using ::testing::HasSubstr;

v1::TrainingJob WovenJob() {
  v1::TrainingJob job = SmallJob({2, 3, 2, 2});
  job.mutable_schedule()->set_delay_wgrad(true);
  return job;
}

class BrokenPlanTest : public testing::Test {
 protected:
  void Compile(const v1::TrainingJob& job) { plan_ = *schedule::Compile(job); }

  std::vector<Op>& ops() { return plan_.train.ops; }

  // The first op from `from` on that `pred` accepts.
  int Find(const std::function<bool(const Op&)>& pred, int from = 0) {
    for (int id = from; id < ops().size(); ++id) {
      if (pred(ops()[id])) return id;
    }
    ADD_FAILURE() << "no such op";
    return 0;
  }
  int FindKind(OpKind kind, int from = 0) {
    return Find([&](const Op& op) { return op.kind == kind; }, from);
  }
  int FindNode(NodeKind kind, Phase phase, int microbatch) {
    return Find([&](const Op& op) {
      return op.kind == OpKind::kNode && op.phase == phase &&
             op.microbatch == microbatch &&
             plan_.model.node(op.layer, op.node).kind == kind;
    });
  }

  // The largest value that op `id` is the first to use and, if `alone`, the
  // last.
  int ValueOf(int id, bool alone) {
    int largest = -1;
    for (int value : ops()[id].args) {
      bool shared = false;
      for (int other = 0; other < (alone ? ops().size() : id); ++other) {
        const std::vector<int>& args = ops()[other].args;
        shared |=
            other != id && std::count(args.begin(), args.end(), value) > 0;
      }
      if (!shared && (largest < 0 || plan_.train.values[value].bytes >
                                         plan_.train.values[largest].bytes)) {
        largest = value;
      }
    }
    EXPECT_GE(largest, 0) << "op " << id << " has no value of its own";
    return std::max(largest, 0);
  }

  void Expect(const std::string& proof, std::vector<int> named,
              const std::string& detail) {
    const absl::Status status =
        VerifyProgram(plan_.train, plan_.model, plan_.units);
    EXPECT_THAT(status,
                StatusIs(absl::StatusCode::kInternal,
                         AllOf(HasSubstr("plan is broken: " + proof + ": "),
                               HasSubstr(detail))));
    for (int id : named) {
      EXPECT_THAT(std::string(status.message()),
                  HasSubstr(absl::StrCat("op ", id)));
    }
  }

  Plan plan_ = *schedule::Compile(WovenJob());
};

TEST_F(BrokenPlanTest, BucketReadBeforeItsGather) {
  const int reader = Find([&](const Op& op) {
    return op.kind == OpKind::kNode && !op.params.empty() &&
           op.params[0].value >= 0 && !op.waits.empty() &&
           ops()[op.waits.back()].kind == OpKind::kGather;
  });
  ops()[reader].waits.pop_back();
  Expect("residency", {reader}, "before its bucket is gathered");
}

TEST_F(BrokenPlanTest, BucketReadAfterItsReleaseOnAnotherStream) {
  const int release = FindKind(OpKind::kRelease);
  const int reader = Find([&](const Op& op) {
    return std::any_of(op.params.begin(), op.params.end(),
                       [&](const ParamUse& use) {
                         return use.value == ops()[release].args[0];
                       });
  });
  ASSERT_NE(ops()[reader].stream, ops()[release].stream);
  ops()[release].waits.clear();
  Expect("residency", {reader, release}, "may have released its bucket");
}

TEST_F(BrokenPlanTest, BucketStillGatheredAtTheEndOfTheStep) {
  const int release = FindKind(OpKind::kRelease);
  const int gather = Find([&](const Op& op) {
    return op.kind == OpKind::kGather && op.args == ops()[release].args;
  });
  DropOp(plan_.train, release, /*inherit=*/true);
  Expect("residency", {gather}, "is never released");
}

TEST_F(BrokenPlanTest, BucketReleasedThatTheStepDidNotGather) {
  const int gather = FindKind(OpKind::kGather);
  const int release = Find([&](const Op& op) {
    return op.kind == OpKind::kRelease && op.args == ops()[gather].args;
  });
  DropOp(plan_.train, gather, /*inherit=*/true);
  Expect("residency", {release - 1}, "is released before it is gathered");
}

TEST_F(BrokenPlanTest, GradientReducedBeforeTheLastWgrad) {
  const int wgrad = FindNode(NodeKind::kExperts, Phase::kWgrad, 0);
  const int bucket = plan_.units.bucket_of_param[ops()[wgrad].grads[0].param];
  const int reduce = Find([&](const Op& op) {
    return op.kind == OpKind::kReduce && op.bucket == bucket;
  });
  ops()[reduce].waits.clear();
  Expect("gradients", {reduce, wgrad}, "before op");
}

TEST_F(BrokenPlanTest, GradientReducedTwice) {
  const int reduce = FindKind(OpKind::kReduce);
  const Op again = ops()[reduce];
  // In the place of another reduction.
  const int other = FindKind(OpKind::kReduce, reduce + 1);
  ops()[other] = again;
  Expect("gradients", {other}, "a second time for microbatch 0");
}

TEST_F(BrokenPlanTest, GradientNeverReduced) {
  // The last microbatch's, which no later one misses.
  const int reduce = Find([](const Op& op) {
    return op.kind == OpKind::kReduce && op.microbatch == 2;
  });
  const int writer = Find([&](const Op& op) {
    return !op.grads.empty() && op.grads[0].value == ops()[reduce].args[0];
  });
  DropOp(plan_.train, reduce, /*inherit=*/true);
  Expect("gradients", {writer}, "for which there is no reduce");
}

v1::TrainingJob BiasedJob() {
  v1::TrainingJob job = WovenJob();
  v1::MoeConfig& moe = *job.mutable_model()->mutable_moe();
  moe.set_score_function(v1::SCORE_FUNCTION_SIGMOID);
  moe.mutable_expert_bias()->set_update_rate(0.1);
  return job;
}

TEST_F(BrokenPlanTest, ExpertBiasMovedByTheCountsOfSomeMicrobatchesOnly) {
  Compile(BiasedJob());
  const int control = FindKind(OpKind::kControl);
  // Of the second layer, after the losses of three microbatches.
  const int counts = ops()[control].args[4];
  const int earlier = Find([&](const Op& op) {
    return std::count(op.args.begin(), op.args.end(), counts) > 0;
  });
  const auto& args = ops()[earlier].args;
  const int place = std::find(args.begin(), args.end(), counts) - args.begin();
  ops()[control].args[4] = args[place - 1];  // of the microbatch before
  Expect("shape", {control}, "is not layers.1.step_counts of microbatch 2");
  ops()[control].args.pop_back();
  Expect("shape", {control}, "and 2 expert biases");
}

TEST_F(BrokenPlanTest, NormTakenBeforeTheLastReduction) {
  const int control = FindKind(OpKind::kControl);
  int reduce = control - 1;
  while (ops()[reduce].kind != OpKind::kReduce) --reduce;
  MoveOp(plan_.train, control, reduce);
  Expect("gradients", {reduce, reduce + 1}, "starts before op");
}

// Values without memory in common, and the resident gradients of one node added
// up in the order of microbatches 0, 2, 1.
TEST_F(BrokenPlanTest, MicrobatchesAddedUpInAnotherOrder) {
  v1::TrainingJob job = WovenJob();
  job.mutable_schedule()->set_order(v1::SCHEDULE_ORDER_SEQUENTIAL);
  job.mutable_fsdp()->set_strategy(v1::SHARDING_STRATEGY_NO_SHARD);
  Compile(job);
  SpreadOut(plan_.train);
  EXPECT_OK(VerifyProgram(plan_.train, plan_.model, plan_.units));
  const int second = FindNode(NodeKind::kExperts, Phase::kWgrad, 1);
  const int third = FindNode(NodeKind::kExperts, Phase::kWgrad, 2);
  const int bucket = plan_.units.bucket_of_param[ops()[third].grads[0].param];
  MoveOp(plan_.train, second, third);
  ops()[Find([&](const Op& op) {
    return op.kind == OpKind::kReduce && op.bucket == bucket;
  })].waits = {third};
  Expect("gradients", {third, third - 1}, "adds microbatch 1");
}

TEST_F(BrokenPlanTest, ValueReadBeforeItIsWritten) {
  v1::TrainingJob job = WovenJob();
  job.mutable_fsdp()->set_strategy(v1::SHARDING_STRATEGY_NO_SHARD);
  Compile(job);
  const int reader = FindNode(NodeKind::kExperts, Phase::kForward, 0);
  const int writer = FindNode(NodeKind::kDispatch, Phase::kForward, 0);
  ops()[reader].waits.clear();
  Expect("values", {reader, writer}, "has written it");
}

TEST_F(BrokenPlanTest, MemoryTakenBeforeItsLastReader) {
  const int reader = FindNode(NodeKind::kExperts, Phase::kForward, 0);
  const Op& op = ops()[reader];
  // What it writes last lies where it reads.
  plan_.train.values[op.args.back()].offset =
      plan_.train.values[op.args.front()].offset;
  Expect("values", {reader}, "takes the memory of value");
}

// Of one value's memory a second one takes a part, in order, and a third one
// the rest, in no order with the first one's use.
TEST_F(BrokenPlanTest, MemoryTakenPartByPartBeforeItsLastReader) {
  v1::TrainingJob job = WovenJob();
  job.mutable_model()->add_dense_layers(0);
  Compile(job);
  Program& program = plan_.train;
  SpreadOut(program);
  // A gather of a later bucket, ahead of the release that waits for the layer.
  const int last_use = FindNode(NodeKind::kAttention, Phase::kForward, 0);
  const int gather = FindKind(OpKind::kRelease, last_use);
  MoveOp(program,
         Find(
             [](const Op& op) {
               return op.kind == OpKind::kGather && op.waits.empty();
             },
             gather),
         gather);
  EXPECT_OK(VerifyProgram(program, plan_.model, plan_.units));
  const int first = ValueOf(last_use, /*alone=*/true);
  const int second = ValueOf(last_use + 1, /*alone=*/false);
  Value& begin = program.values[second];
  Value& rest = program.values[ops()[gather].args[0]];
  const int64_t bytes = program.values[first].bytes;
  ASSERT_GT(bytes, begin.bytes);
  begin.offset = program.values[first].offset = program.arena_bytes;
  rest.offset = begin.offset + (begin.bytes + 63) / 64 * 64;
  program.arena_bytes = rest.offset + bytes + rest.bytes;
  Expect("values", {gather, last_use},
         absl::StrCat("takes the memory of value ", first));
}

TEST_F(BrokenPlanTest, ValuesThatDoNotFitTheArena) {
  int last = 0;
  std::vector<Value>& values = plan_.train.values;
  for (int v = 0; v < values.size(); ++v) {
    if (values[v].space == model::Space::kDevice &&
        values[v].offset + values[v].bytes >
            values[last].offset + values[last].bytes) {
      last = v;
    }
  }
  plan_.train.arena_bytes = values[last].offset + values[last].bytes - 1;
  Expect("values", {}, absl::StrCat("value ", last, " of "));
  EXPECT_THAT(VerifyProgram(plan_.train, plan_.model, plan_.units),
              StatusIs(absl::StatusCode::kInternal, HasSubstr(": op ")));
}

// Rows that routing may send are held by their bound.
TEST_F(BrokenPlanTest, RoutedRowsThatExceedTheirMemory) {
  const int writer = FindNode(NodeKind::kDispatch, Phase::kForward, 0);
  const auto& args = plan_.model.node(ops()[writer].layer, ops()[writer].node)
                         .Find(Phase::kForward)
                         ->args;
  for (int i = 0; i < args.size(); ++i) {
    if (plan_.model.values[args[i].value].rows != model::Rows::kReceived) {
      continue;
    }
    const int value = ops()[writer].args[i];
    plan_.train.values[value].bytes /= 2;
    Expect("shape", {writer}, absl::StrCat("value ", value, " has "));
    return;
  }
  FAIL() << "dispatch writes no counted rows";
}

TEST_F(BrokenPlanTest, HostValueReadBeforeTheHostWait) {
  const int wait = FindKind(OpKind::kHostWait);
  const int reader = FindNode(NodeKind::kDispatch, Phase::kForward, 0);
  ASSERT_LT(wait, reader);
  MoveOp(plan_.train, wait, reader);
  Expect("values", {reader - 1}, "has not waited for");
}

TEST_F(BrokenPlanTest, NodePhaseThatNeverRuns) {
  const int combine = FindNode(NodeKind::kCombine, Phase::kDgrad, 1);
  const int layer = ops()[combine].layer;
  DropOp(plan_.train, combine, /*inherit=*/true);
  const int beside = Find(
      [&](const Op& op) { return op.layer == layer && op.microbatch == 1; });
  Expect("coverage", {beside}, "no op of dgrad of layers.1.combine");
}

TEST_F(BrokenPlanTest, HostWaitThatNeverComes) {
  DropOp(plan_.train, FindKind(OpKind::kHostWait), /*inherit=*/true);
  Expect("coverage", {}, "no host wait of forward of layers.0.counts");
}

TEST_F(BrokenPlanTest, StepWithoutControl) {
  v1::TrainingJob job = WovenJob();
  job.mutable_eval()->set_batches(1);
  plan_ = *schedule::Compile(job);
  plan_.train = *plan_.eval;
  const int control = FindKind(OpKind::kControl);
  DropOp(plan_.train, control, /*inherit=*/true);
  Expect("gradients", {static_cast<int>(ops().size()) - 1},
         "without a control op");
}

// Programs of two ranks. Each is sound by itself.
class BrokenRanksTest : public BrokenPlanTest {
 protected:
  void Expect(const Program& first, const Program& second,
              const std::string& detail,
              const std::vector<std::string>& named) {
    for (const Program* program : {&first, &second}) {
      EXPECT_OK(VerifyProgram(*program, plan_.model, plan_.units));
    }
    const absl::Status status =
        VerifyRanks({&first, &second}, plan_.world, plan_.model, plan_.units);
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInternal,
                                 AllOf(HasSubstr("plan is broken: agreement: "),
                                       HasSubstr(detail))));
    for (const std::string& op : named) {
      EXPECT_THAT(std::string(status.message()), HasSubstr(op));
    }
  }

  // An all-to-all with, right behind it, a gather that has nothing to do with
  // it.
  int GatherBehindAllToAll() {
    return 1 + Find([&](const Op& op) {
             if (op.kind != OpKind::kNode || op.stream != StreamKind::kEp) {
               return false;
             }
             const Op& next = *(&op + 1);
             return next.kind == OpKind::kGather && next.waits.empty();
           });
  }
};

TEST_F(BrokenRanksTest, RanksOfOneProgramAgree) {
  const std::vector<const Program*> by_rank(2, &plan_.train);
  EXPECT_OK(VerifyRanks(by_rank, plan_.world, plan_.model, plan_.units));
  const Program copy = plan_.train;
  EXPECT_OK(VerifyRanks({&plan_.train, &copy}, plan_.world, plan_.model,
                        plan_.units));
}

// Rank 0 gathers after its all-to-all, rank 1 does its all-to-all after the
// gather: neither of the two can begin on both ranks.
TEST_F(BrokenRanksTest, RanksOfAnExpertParallelGroupWaitForEachOther) {
  const int gather = GatherBehindAllToAll();
  Program first = plan_.train;
  first.ops[gather].waits = {gather - 1};
  Program second = plan_.train;
  MoveOp(second, gather, gather - 1);
  second.ops[gather].waits.push_back(gather - 1);
  Expect(first, second, "waits, in the end, for itself",
         {absl::StrCat("rank 0 op ", gather - 1),
          absl::StrCat("rank 0 op ", gather)});
}

// No op waits for the other, but the launching threads issue them in another
// order: a library that runs collectives in launch order waits for ever.
TEST_F(BrokenRanksTest, RanksLaunchCollectivesInAnotherOrder) {
  const int gather = GatherBehindAllToAll();
  Program second = plan_.train;
  MoveOp(second, gather, gather - 1);
  Expect(plan_.train, second, "waits, in the end, for itself",
         {absl::StrCat("rank 0 op ", gather - 1),
          absl::StrCat("rank 0 op ", gather)});
}

TEST_F(BrokenRanksTest, RanksIssueCollectivesInAnotherOrder) {
  v1::TrainingJob job = WovenJob();
  job.mutable_schedule()->set_order(v1::SCHEDULE_ORDER_SEQUENTIAL);
  const Program sequential = schedule::Compile(job)->train;
  Expect(plan_.train, sequential, "are different collectives of one group",
         {"rank 0 op ", "rank 1 op "});
}

TEST_F(BrokenRanksTest, RankIssuesACollectiveThatTheOtherDoesNot) {
  v1::TrainingJob job = WovenJob();
  job.mutable_schedule()->set_order(v1::SCHEDULE_ORDER_SEQUENTIAL);
  Compile(job);
  // A second visit of the last bucket that is gathered.
  Program more = plan_.train;
  const auto last = [&](OpKind kind) {
    int id = more.ops.size() - 1;
    while (more.ops[id].kind != kind) --id;
    return id;
  };
  const int release = last(OpKind::kRelease);
  Value value = more.values[more.ops[release].args[0]];
  value.offset = more.arena_bytes;
  more.arena_bytes += value.bytes;
  more.values.push_back(value);
  Op visit = more.ops[release];
  visit.args = {static_cast<int>(more.values.size()) - 1};
  visit.waits.clear();
  visit.kind = OpKind::kGather;
  // Ahead of the control op, which nothing but the optimizer follows.
  const int control = last(OpKind::kControl);
  more.ops.push_back(visit);
  visit.kind = OpKind::kRelease;
  more.ops.push_back(visit);
  MoveOp(more, more.ops.size() - 1, control);
  MoveOp(more, more.ops.size() - 1, control);
  const int optimizer = last(OpKind::kOptimizer);
  for (int id = control + 2; id <= optimizer; ++id) {
    if (more.ops[id].bucket == visit.bucket) {
      more.ops[id].waits.push_back(control);
      std::sort(more.ops[id].waits.begin(), more.ops[id].waits.end());
    }
  }
  Expect(plan_.train, more, "is a collective that rank 0 does not issue",
         {absl::StrCat("rank 1 op ", control)});
}

}  // namespace
}  // namespace weft::schedule

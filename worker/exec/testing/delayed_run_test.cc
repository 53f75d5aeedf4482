#include "worker/exec/testing/delayed_run.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "schedule/plan.h"
#include "schedule/testing/mutants.h"
#include "worker/exec/testing/tiny_job.h"

namespace weft::exec::testing {
namespace {

using schedule::Op;
using schedule::OpKind;
using schedule::Program;
using ::testing::HasSubstr;

TinyJob WovenJob() {
  TinyJob tiny;
  tiny.world = 4;
  tiny.ep = 2;
  tiny.microbatches = 2;
  tiny.layers = 2;
  tiny.dense_layers = 0;
  tiny.delay_wgrad = true;
  return tiny;
}

// What the oracle says of the woven job's program after an edit.
std::string HarmAfter(const std::function<void(Program&)>& edit, int seeds) {
  DelayedRun run;
  run.job = MakeJob(WovenJob());
  run.seeds = seeds;
  const auto bits = RunDelayed(run);
  if (!bits.ok()) return std::string(bits.status().message());
  Program program = schedule::Compile(run.job)->train;
  edit(program);
  run.program = &program;
  return HarmOf(run, *bits);
}

TEST(DelayedRunTest, DelaysChangeNoBitOfAProgramThatIsProved) {
  DelayedRun run;
  run.job = MakeJob(WovenJob());
  run.seeds = 5;
  ASSERT_OK_AND_ASSIGN(const RunBits undelayed,
                       RunUndelayed(run.job, run.seeds));
  EXPECT_EQ(HarmOf(run, undelayed), "");
}

TEST(DelayedRunTest, FindsAWaitThatIsMissing) {
  EXPECT_NE(HarmAfter(
                [](Program& program) {
                  for (Op& op : program.ops) {
                    if (op.kind == OpKind::kReduce) op.waits.clear();
                  }
                },
                20),
            "");
}

TEST(DelayedRunTest, FindsAGradientThatForgetsAMicrobatch) {
  EXPECT_THAT(HarmAfter(
                  [](Program& program) {
                    for (Op& op : program.ops) {
                      if (op.kind == OpKind::kReduce) op.accumulate = false;
                    }
                  },
                  2),
              HasSubstr("other losses or norms in step 1"));
}

// The verifier's proof of the order of microbatches guards bits.
TEST(DelayedRunTest, FindsASumOverMicrobatchesInAnotherOrder) {
  TinyJob tiny;
  tiny.layers = 1;
  tiny.dense_layers = 0;
  tiny.microbatches = 3;
  tiny.combined = false;
  tiny.strategy = v1::SHARDING_STRATEGY_NO_SHARD;
  DelayedRun run;
  run.job = MakeJob(tiny);
  run.seeds = 3;
  ASSERT_OK_AND_ASSIGN(const RunBits bits, RunDelayed(run));
  Program program = schedule::Compile(run.job)->train;
  schedule::SpreadOut(program);
  std::vector<int> writes;  // of the gradients that the first reduction sums
  const auto reduce =
      std::find_if(program.ops.begin(), program.ops.end(),
                   [](const Op& op) { return op.kind == OpKind::kReduce; });
  for (int id = 0; id < program.ops.size(); ++id) {
    const Op& op = program.ops[id];
    const Op& last = program.ops[reduce->waits.at(0)];
    if (op.kind == OpKind::kNode && op.layer == last.layer &&
        op.node == last.node && op.phase == last.phase) {
      writes.push_back(id);
    }
  }
  ASSERT_EQ(writes.size(), 3);
  run.program = &program;
  EXPECT_EQ(HarmOf(run, bits), "");
  schedule::MoveOp(program, writes[1], writes[2]);
  reduce->waits = {writes[2]};
  EXPECT_NE(HarmOf(run, bits), "");
}

TEST(InOwnProcessTest, TellsWhatItReturnsAndHowItEnds) {
  EXPECT_EQ(InOwnProcess([] { return std::string("fine"); }), "fine");
  EXPECT_EQ(InOwnProcess([]() -> std::string { std::abort(); }),
            "died of signal 6");
  EXPECT_EQ(InOwnProcess([]() -> std::string { ::_exit(3); }), "ended early");
}

}  // namespace
}  // namespace weft::exec::testing

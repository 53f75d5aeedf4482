#include "worker/exec/testing/delayed_run.h"

#include <unistd.h>

#include <cstdlib>
#include <functional>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "schedule/plan.h"
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

TEST(InOwnProcessTest, TellsWhatItReturnsAndHowItEnds) {
  EXPECT_EQ(InOwnProcess([] { return std::string("fine"); }), "fine");
  EXPECT_EQ(InOwnProcess([]() -> std::string { std::abort(); }),
            "died of signal 6");
  EXPECT_EQ(InOwnProcess([]() -> std::string { ::_exit(3); }), "ended early");
}

}  // namespace
}  // namespace weft::exec::testing

// Mutation test of the verifier: what it accepts does no harm.
//
// Every mutant of some small programs goes before the verifier, and a sample of
// those that it accepts, and of those that it rejects, runs (see
// MutationTrial). An accepted mutant that does harm is a hole in the verifier.
//
// WEFT_MUTANTS says how many accepted and how many rejected mutants of a class
// run for each program; 0 runs all that are accepted, and 20 that are rejected.
#include <cstdlib>
#include <iostream>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/sanitized.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "schedule/plan.h"
#include "schedule/testing/mutants.h"
#include "worker/exec/testing/mutation_trial.h"
#include "worker/exec/testing/tiny_job.h"

namespace weft::exec {
namespace {

using testing::MutantTally;
using testing::MutationReport;
using testing::MutationTrial;
using testing::TinyJob;

// Sanitizers take long over the proofs: they get fewer programs and mutants.
const bool kSanitized = IsSanitized();
const int kDefaultSample = kSanitized ? 1 : 2;

struct Case {
  const char* name;
  TinyJob job;
  // No two values share memory: only what a proof says of order keeps ops in
  // order.
  bool spread_out = false;
};

class MutationTest : public ::testing::TestWithParam<Case> {
 protected:
  static void SetSampleSizes(MutationTrial& trial) {
    const char* text = std::getenv("WEFT_MUTANTS");
    int sample = kDefaultSample;
    if (text != nullptr) {
      ASSERT_TRUE(absl::SimpleAtoi(text, &sample)) << "WEFT_MUTANTS=" << text;
    }
    trial.accepted_to_run =
        sample > 0 ? sample : std::numeric_limits<int>::max();
    trial.rejected_to_run = sample > 0 ? sample : 20;
  }

  static void Record(const MutationReport& report) {
    for (int i = 0; i < report.classes.size(); ++i) {
      const MutantTally& tally = report.classes[i];
      const char* name = Name(static_cast<schedule::MutantClass>(i));
      RecordProperty(absl::StrCat("killed_", name),
                     absl::StrCat(tally.rejected.offered()));
      RecordProperty(absl::StrCat("accepted_", name),
                     absl::StrCat(tally.accepted.offered()));
    }
  }
};

TEST_P(MutationTest, EveryHarmfulMutantIsRejected) {
  MutationTrial trial;
  SetSampleSizes(trial);
  trial.job = testing::MakeJob(GetParam().job);
  ASSERT_OK_AND_ASSIGN(schedule::Plan plan, schedule::Compile(trial.job));
  if (GetParam().spread_out) schedule::SpreadOut(plan.train);
  trial.plan = &plan;
  const MutationReport report = testing::RunMutationTrial(trial);
  std::cout << report.ToText(absl::StrCat(GetParam().name, ", ",
                                          plan.train.ops.size(), " ops"))
            << std::flush;
  Record(report);
  EXPECT_THAT(report.harms, ::testing::IsEmpty());
  int harmful_rejected = 0;
  for (const MutantTally& tally : report.classes) {
    EXPECT_GT(tally.rejected.offered(), 0);
    harmful_rejected += tally.harmful_rejected;
  }
  EXPECT_GT(harmful_rejected, 0) << "the trial sees no harm";
}

// One layer with experts, on two ranks that share them.
TinyJob Small() {
  TinyJob small;
  small.world = 2;
  small.ep = 2;
  small.layers = 1;
  small.dense_layers = 0;
  small.shared_expert = false;
  return small;
}

std::vector<Case> Cases() {
  const TinyJob small = Small();
  TinyJob no_shard = small;
  no_shard.combined = false;
  no_shard.microbatches = 3;
  no_shard.strategy = v1::SHARDING_STRATEGY_NO_SHARD;
  TinyJob tied = small;
  tied.microbatches = 3;
  tied.tied = true;
  tied.strategy = v1::SHARDING_STRATEGY_OPTIM;
  TinyJob grads = small;
  grads.world = 4;
  grads.microbatches = 2;
  grads.delay_wgrad = true;
  grads.strategy = v1::SHARDING_STRATEGY_OPTIM_GRADS;
  TinyJob recompute = small;
  recompute.microbatches = 2;
  recompute.more = "schedule { recompute { full: true } }";
  TinyJob sequential = small;
  sequential.ep = 1;
  sequential.combined = false;
  sequential.delay_wgrad = true;
  sequential.microbatches = 2;
  TinyJob woven = small;
  woven.world = 4;
  woven.layers = 2;
  woven.dense_layers = 1;
  woven.microbatches = 2;
  woven.delay_wgrad = true;
  if (kSanitized) return {{"CombinedTiedOptim", tied}};
  TinyJob slots = woven;
  slots.more =
      "fsdp { buffer_slots: 2 } "
      "optimizer { kind: OPTIMIZER_KIND_SGD momentum: 0.9 "
      "  groups { parameters: 'layers.0.*' frozen: true } }";
  TinyJob routers = small;
  routers.microbatches = 3;
  routers.uneven = {2, 1, 3};
  routers.router_losses = true;
  routers.loss_mask = true;
  routers.token_loss = true;
  routers.strategy = v1::SHARDING_STRATEGY_OPTIM_GRADS;
  return {{"SequentialNoShard", no_shard},
          {"SequentialNoShardSpreadOut", no_shard, /*spread_out=*/true},
          {"CombinedTiedOptim", tied},
          {"CombinedDelayedOptimGrads", grads},
          {"SequentialDelayedOptimGradsParams", sequential},
          {"CombinedDelayedOptimGradsParams", woven},
          {"CombinedDelayedSlotsFrozen", slots},
          {"CombinedRouterLossesUneven", routers},
          {"CombinedRecompute", recompute}};
}

INSTANTIATE_TEST_SUITE_P(Programs, MutationTest, ::testing::ValuesIn(Cases()),
                         [](const auto& info) {
                           return std::string(info.param.name);
                         });

}  // namespace
}  // namespace weft::exec

// Thousands of random jobs: the coordinator tells the legal ones, each of them
// compiles to a plan that verifies and simulates, and a sample of every
// strategy and order runs, with dead memory poisoned, to the bits of the plain
// order.
//
// WEFT_RANDOM_JOBS says how many jobs are drawn. Of each order and strategy the
// first ten run that have a world of at most four.
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/sanitized.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "schedule/arena.h"
#include "schedule/plan.h"
#include "schedule/rules/validate.h"
#include "schedule/simulate.h"
#include "tests/property/random_job.h"
#include "worker/exec/testing/delayed_run.h"

namespace weft::tests {
namespace {

using schedule::Violation;
using ::testing::Contains;
using ::testing::Field;

const int kJobs = IsSanitized() ? 400 : 4000;
const int kRunsOfAKind = IsSanitized() ? 1 : 10;

constexpr int kSteps = 2;

int JobsToDraw() {
  const char* text = std::getenv("WEFT_RANDOM_JOBS");
  int jobs = kJobs;
  if (text != nullptr) {
    EXPECT_TRUE(absl::SimpleAtoi(text, &jobs)) << "WEFT_RANDOM_JOBS=" << text;
  }
  return jobs;
}

// Jobs of one order and strategy.
struct Counts {
  int generated = 0;
  int legal = 0;
  int verified = 0;  // compiled and proved
  int ran = 0;
};

std::string KindOf(const v1::TrainingJob& job) {
  return absl::StrCat(v1::ScheduleOrder_Name(job.schedule().order()), " ",
                      v1::ShardingStrategy_Name(job.fsdp().strategy()));
}

// The job as the plainest plan runs it.
v1::TrainingJob Plain(v1::TrainingJob job) {
  job.mutable_schedule()->set_order(v1::SCHEDULE_ORDER_SEQUENTIAL);
  job.mutable_schedule()->set_delay_wgrad(false);
  job.mutable_fsdp()->clear_prefetch_bytes();
  job.mutable_fsdp()->clear_backward_prefetch_bytes();
  job.mutable_fsdp()->clear_buffer_slots();
  job.mutable_fsdp()->clear_reduce_bytes();
  job.clear_output();
  return job;
}

void ExpectBitsOfThePlainOrder(const v1::TrainingJob& job) {
  exec::testing::DelayedRun run;
  run.job = job;
  run.seeds = kSteps;
  ASSERT_OK_AND_ASSIGN(const exec::testing::RunBits plain,
                       exec::testing::RunUndelayed(Plain(job), kSteps));
  EXPECT_EQ(exec::testing::HarmOf(run, plain), "");
}

class RandomJobsTest : public ::testing::Test {
 protected:
  // Draws a job and follows it as far as it goes.
  void Follow(std::mt19937& random) {
    const v1::TrainingJob job = RandomJob(random);
    SCOPED_TRACE(job.ShortDebugString());
    Counts& counts = counts_[KindOf(job)];
    ++counts.generated;
    const auto violations = schedule::Validate(job).violations;
    const std::string broken = BrokenRule(job);
    if (!broken.empty()) {
      ASSERT_THAT(violations, Contains(Field(&Violation::field, broken)));
      return;
    }
    ASSERT_TRUE(violations.empty())
        << violations[0].field << ": " << violations[0].description;
    ++counts.legal;
    ASSERT_OK_AND_ASSIGN(const schedule::Plan plan, schedule::Compile(job));
    ASSERT_OK(schedule::Verify(plan));
    const std::vector<int64_t> live = schedule::LiveBytes(plan.train);
    ASSERT_GE(plan.train.arena_bytes,
              *std::max_element(live.begin(), live.end()));
    ++counts.verified;
    ASSERT_OK_AND_ASSIGN(
        const schedule::Simulation simulated,
        schedule::Simulate(plan, plan.train,
                           schedule::ModelledCosts(plan, plan.train),
                           {schedule::BalancedRows(plan, plan.train)}));
    ASSERT_GT(simulated.step_seconds, 0);
    if (counts.ran < kRunsOfAKind && CanRun(job)) {
      ++counts.ran;
      ExpectBitsOfThePlainOrder(job);
    }
  }

  void Report() {
    std::cout << absl::StrFormat("%-64s %9s %6s %9s %4s\n", "", "generated",
                                 "legal", "verified", "ran");
    for (const auto& [kind, counts] : counts_) {
      std::cout << absl::StrFormat("%-64s %9d %6d %9d %4d\n", kind,
                                   counts.generated, counts.legal,
                                   counts.verified, counts.ran);
      RecordProperty("generated " + kind, counts.generated);
      RecordProperty("legal " + kind, counts.legal);
      RecordProperty("verified " + kind, counts.verified);
      RecordProperty("ran " + kind, counts.ran);
    }
    std::cout << std::flush;
  }

  std::map<std::string, Counts> counts_;
};

TEST_F(RandomJobsTest, LegalOnesCompileVerifyAndRunAlike) {
  const int jobs = JobsToDraw();
  std::mt19937 random(20261130);
  for (int i = 0; i < jobs && !HasFatalFailure(); ++i) Follow(random);
  Report();
  EXPECT_EQ(counts_.size(), 2 * 4);
  int legal = 0;
  for (const auto& [kind, counts] : counts_) {
    EXPECT_GT(counts.generated, jobs / 16) << kind;
    EXPECT_GE(counts.legal, 0.85 * counts.generated) << kind;
    EXPECT_LT(counts.legal, counts.generated) << kind;
    EXPECT_EQ(counts.verified, counts.legal) << kind;
    EXPECT_EQ(counts.ran, kRunsOfAKind) << kind;
    legal += counts.legal;
  }
  EXPECT_GE(legal, 0.9 * jobs);
}

}  // namespace
}  // namespace weft::tests

// The mutation test of the verifier over random jobs: what it accepts of their
// programs' mutants does no harm (see MutationTrial).
//
// WEFT_MUTANT_JOBS says how many jobs are drawn.
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "base/sanitized.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "schedule/plan.h"
#include "tests/property/random_job.h"
#include "worker/exec/testing/mutation_trial.h"

namespace weft::tests {
namespace {

using exec::testing::MutantTally;
using exec::testing::MutationReport;
using exec::testing::MutationTrial;

const int kJobs = IsSanitized() ? 4 : 20;

int JobsToDraw() {
  const char* text = std::getenv("WEFT_MUTANT_JOBS");
  int jobs = kJobs;
  if (text != nullptr) {
    EXPECT_TRUE(absl::SimpleAtoi(text, &jobs)) << "WEFT_MUTANT_JOBS=" << text;
  }
  return jobs;
}

// A random mask may leave out all tokens of a step that has a sequence alone.
bool HasTokensToLearn(const v1::TrainingJob& job) {
  return job.data().loss_mask_prefix().empty() ||
         job.batch().global_batch() > 1;
}

// A random job that is legal, runs and is small.
v1::TrainingJob SmallRandomJob(std::mt19937& random) {
  while (true) {
    v1::TrainingJob job = RandomJob(random);
    const int sequences = job.batch().global_batch() / job.parallel().world();
    if (BrokenRule(job).empty() && CanRun(job) && HasTokensToLearn(job) &&
        job.model().num_layers() <= 3 && job.model().pattern().size() <= 6 &&
        sequences <= 4) {
      // A mutant stands for the training program alone.
      job.clear_output();
      return job;
    }
  }
}

TEST(RandomMutantsTest, EveryHarmfulMutantIsRejected) {
  constexpr double kMovesToTry = 400;
  std::mt19937 random(20261130);
  int64_t killed = 0;
  int64_t accepted = 0;
  for (int i = JobsToDraw(); i > 0; --i) {
    MutationTrial trial;
    trial.job = SmallRandomJob(random);
    SCOPED_TRACE(trial.job.ShortDebugString());
    ASSERT_OK_AND_ASSIGN(const schedule::Plan plan,
                         schedule::Compile(trial.job));
    trial.plan = &plan;
    const double ops = static_cast<double>(plan.train.ops.size());
    trial.share = std::min(1.0, kMovesToTry / (ops * ops));
    trial.accepted_to_run = 2;
    const MutationReport report = RunMutationTrial(trial);
    EXPECT_THAT(report.harms, ::testing::IsEmpty());
    for (const MutantTally& tally : report.classes) {
      killed += tally.rejected.offered();
      accepted += tally.accepted.offered();
    }
  }
  std::cout << killed << " mutants killed, " << accepted << " accepted"
            << std::endl;
  EXPECT_GT(killed, accepted);
  EXPECT_GT(accepted, 0);
}

}  // namespace
}  // namespace weft::tests

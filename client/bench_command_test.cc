// weftctl bench, against a coordinator that runs nothing: what it submits.

#include <string>

#include "absl/strings/str_cat.h"
#include "client/cli_fixture.h"
#include "client/fake_coordinator.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::client {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

class BenchCommandTest : public CliTest {
 protected:
  Result Bench(const std::string& flags) {
    Serve();
    return Run(absl::StrCat(
        "bench -f ",
        Job("name: moe\nparallel: {world: 2}\n"
            "batch: {global_batch: 4, microbatch: 1}\nsteps: 900\n"
            "optimizer: {learning_rate: 1e-3, warmup_steps: 50, decay: cosine, "
            "min_learning_rate: 1e-4}\neval: {every_steps: 5, batches: 1}\n"
            "output: {final_parameters: true}\n"),
        " ", flags));
  }
};

TEST_F(BenchCommandTest, TheJobIsCutToWhatIsTimed) {
  Bench("--steps 4 --warmup 0 --balanced");
  ASSERT_THAT(coordinator_->submits(), SizeIs(1));
  const v1::TrainingJob job = coordinator_->submits()[0].job();
  EXPECT_EQ(job.steps(), 4);
  EXPECT_EQ(job.optimizer().warmup_steps(), 0);
  EXPECT_EQ(job.optimizer().decay(), v1::DECAY_UNSPECIFIED);
  EXPECT_EQ(job.optimizer().min_learning_rate(), 0);
  EXPECT_EQ(job.optimizer().learning_rate(), 1e-3);
  EXPECT_FALSE(job.has_eval());
  EXPECT_FALSE(job.output().final_parameters());
  EXPECT_TRUE(job.bench().balanced_routing());
  EXPECT_EQ(job.bench().exchanges(), v1::EXCHANGES_UNSPECIFIED);
  EXPECT_TRUE(job.guards().has_replica_check_steps());
}

TEST_F(BenchCommandTest, SomeStepMustBeMeasured) {
  const Result result = Bench("--steps 4 --warmup 4");
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("--warmup=4 is not below --steps=4"));
  EXPECT_THAT(coordinator_->submits(), SizeIs(0));
}

}  // namespace
}  // namespace weft::client

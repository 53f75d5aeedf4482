// What stops a job that goes wrong, as whoever submitted it sees it: by the
// last message of the job.
#include <fstream>
#include <ios>
#include <limits>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cluster/cluster.h"
#include "tests/cluster/files.h"
#include "tests/cluster/jobs.h"
#include "worker/service/checkpoint_testutil.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class GuardsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(cluster_, Cluster::Start({}));
    ASSERT_OK_AND_ASSIGN(
        data_, WriteDataset("text", 20000, kVocab, /*constant=*/false));
  }

  v1::TrainingJob Job() const {
    ClusterJob options;
    options.data = data_;
    options.steps = 4;
    return MakeJob(options);
  }

  std::unique_ptr<Cluster> cluster_;
  std::string data_;
};

TEST_F(GuardsTest, ACheckpointThatIsNotFiniteIsNamed) {
  const std::string folder = ::testing::TempDir();
  ASSERT_OK(service::WriteMixtral(folder));
  // The last element of some parameter.
  std::fstream file(absl::StrCat(folder, "/model.safetensors"),
                    std::ios::in | std::ios::out | std::ios::binary);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  file.seekp(-static_cast<int>(sizeof(nan)), std::ios::end);
  file.write(reinterpret_cast<const char*>(&nan), sizeof(nan));
  file.close();
  ASSERT_TRUE(file);
  v1::TrainingJob job = Job();
  *job.mutable_model() = service::MixtralJob().model();
  job.mutable_init()->set_hugging_face(folder);
  ASSERT_OK_AND_ASSIGN(const JobResult result, cluster_->Run(job));
  EXPECT_EQ(result.job.state(), v1::JOB_STATE_FAILED);
  EXPECT_THAT(result.job.message(),
              AllOf(HasSubstr("initial weights of head.norm: "),
                    HasSubstr("tensor model.norm.weight [16] has nan as "
                              "element 15; weights must be finite")));
  // The workers take the next job.
  ASSERT_OK_AND_ASSIGN(const JobResult next, cluster_->Run(Job()));
  EXPECT_EQ(next.job.state(), v1::JOB_STATE_SUCCEEDED) << next.job.message();
}

TEST_F(GuardsTest, AParameterThatDoesNotMoveIsNamed) {
  v1::TrainingJob job = Job();
  job.mutable_optimizer()->set_learning_rate(1e-30);
  job.mutable_guards()->set_stuck_parameter_steps(3);
  ASSERT_OK_AND_ASSIGN(const JobResult result, cluster_->Run(job));
  EXPECT_EQ(result.job.state(), v1::JOB_STATE_FAILED);
  EXPECT_THAT(result.job.message(),
              HasSubstr("step 3: parameter embedding.table"));
  // What other ranks say of step 2 may be under way when one fails step 3.
  EXPECT_THAT(result.steps, AnyOf(SizeIs(1), SizeIs(2)));
}

TEST_F(GuardsTest, ReplicasOfEveryStepAgreeBetweenProcesses) {
  v1::TrainingJob job = Job();
  job.mutable_guards()->set_replica_check_steps(1);
  for (const auto strategy : {v1::SHARDING_STRATEGY_NO_SHARD,
                              v1::SHARDING_STRATEGY_OPTIM_GRADS_PARAMS}) {
    job.mutable_fsdp()->set_strategy(strategy);
    ASSERT_OK_AND_ASSIGN(const JobResult result, cluster_->Run(job));
    EXPECT_EQ(result.job.state(), v1::JOB_STATE_SUCCEEDED)
        << result.job.message();
  }
}

}  // namespace
}  // namespace weft::testing

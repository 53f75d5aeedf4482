// Bitwise parity of the orders, in jobs of the shipped binaries: distinct
// processes, UCX between them, released memory poisoned.
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cluster/cluster.h"
#include "tests/cluster/jobs.h"

namespace weft::testing {
namespace {

constexpr int kSteps = 3;

// What must agree to the bit.
struct Bits {
  std::vector<uint64_t> losses;
  std::vector<uint64_t> norms;
  std::map<std::string, std::string> parameters;

  bool operator==(const Bits& other) const {
    return losses == other.losses && norms == other.norms &&
           parameters == other.parameters;
  }
};

uint64_t BitsOf(double value) {
  uint64_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

class ParityTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(cluster_,
                         Cluster::Start(4, {"--released_memory=poison"}));
    ASSERT_OK_AND_ASSIGN(random_, WriteDataset("random", 4000, 29, false));
    ASSERT_OK_AND_ASSIGN(constant_, WriteDataset("constant", 4000, 29, true));
  }

  Bits RunOnce(const ClusterJob& options) {
    Bits bits;
    absl::StatusOr<JobResult> result = cluster_->Run(MakeJob(options));
    EXPECT_OK(result.status());
    if (!result.ok()) return bits;
    EXPECT_EQ(result->job.state(), v1::JOB_STATE_SUCCEEDED)
        << result->job.message();
    EXPECT_EQ(result->steps.size(), kSteps);
    EXPECT_EQ(result->parameters.size(), options.world);
    for (const v1::StepMetrics& step : result->steps) {
      bits.losses.push_back(BitsOf(step.loss()));
      bits.norms.push_back(BitsOf(step.grad_norm()));
    }
    bits.parameters = std::move(result->parameters);
    return bits;
  }

  // Runs both orders, wgrad at once and delayed; returns how many jobs ran.
  int CompareOrders(ClusterJob options) {
    options.steps = kSteps;
    options.combined = false;
    options.delay_wgrad = false;
    const Bits plain = RunOnce(options);
    int jobs = 1;
    for (bool combined : {false, true}) {
      for (bool delay : {false, true}) {
        if (!combined && !delay) continue;
        options.combined = combined;
        options.delay_wgrad = delay;
        EXPECT_TRUE(RunOnce(options) == plain)
            << "world " << options.world << " ep " << options.ep
            << " microbatches " << options.microbatches << " no_shard "
            << options.no_shard << " combined " << combined << " delay "
            << delay;
        ++jobs;
      }
    }
    return jobs;
  }

  std::unique_ptr<Cluster> cluster_;
  std::string random_;
  std::string constant_;
};

TEST_F(ParityTest, OrdersAgreeToTheBit) {
  int jobs = 0;
  for (int world : {1, 2, 4}) {
    for (int ep = 1; ep <= world; ep *= 2) {
      for (int microbatches : {1, 2, 3, 5}) {
        for (bool no_shard : {false, true}) {
          ClusterJob options;
          options.data = random_;
          options.world = world;
          options.ep = ep;
          options.microbatches = microbatches;
          options.no_shard = no_shard;
          options.tied = microbatches == 3;
          jobs += CompareOrders(options);
        }
      }
    }
  }
  RecordProperty("jobs", jobs);
  EXPECT_EQ(jobs, 6 * 4 * 2 * 4);

  std::set<int64_t> pids;
  ASSERT_OK_AND_ASSIGN(std::vector<v1::Worker> workers, cluster_->Workers());
  for (const v1::Worker& worker : workers) pids.insert(worker.pid());
  EXPECT_EQ(pids.size(), 4);
}

TEST_F(ParityTest, OrdersAgreeWhenExpertsGetNoTokens) {
  for (bool no_shard : {false, true}) {
    ClusterJob options;
    options.data = constant_;
    options.ep = 4;
    options.microbatches = 3;
    options.no_shard = no_shard;
    CompareOrders(options);
  }
}

TEST_F(ParityTest, StrategiesAgreeAtOneMicrobatch) {
  ClusterJob options;
  options.data = random_;
  options.microbatches = 1;
  const Bits sharded = RunOnce(options);
  options.no_shard = true;
  const Bits whole = RunOnce(options);
  EXPECT_EQ(sharded.losses, whole.losses);
  EXPECT_EQ(sharded.norms, whole.norms);
}

}  // namespace
}  // namespace weft::testing

// Bitwise parity of the orders, in jobs of the shipped binaries: distinct
// processes, UCX between them, released memory poisoned.
#include <cstdint>
#include <cstring>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cluster/cluster.h"
#include "tests/cluster/files.h"
#include "tests/cluster/jobs.h"

namespace weft::testing {
namespace {

constexpr int kSteps = 3;

// What must agree to the bit.
struct Bits {
  std::vector<uint64_t> losses;
  std::vector<uint64_t> norms;
  std::map<std::string, std::string> parameters;
};

uint64_t BitsOf(double value) {
  uint64_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

std::string Describe(const ClusterJob& job) {
  return absl::StrCat("world ", job.world, " ep ", job.ep, " microbatches ",
                      job.microbatches, job.no_shard ? " no_shard" : " zero3",
                      job.tied ? " tied" : "",
                      job.combined ? " combined" : " sequential",
                      job.delay_wgrad ? " delayed" : " at once");
}

// What a model and its data are like.
enum class Variant { kPlain, kTiedEmbeddings, kExpertsWithoutTokens };

std::string NameOf(const ::testing::TestParamInfo<Variant>& info) {
  constexpr const char* kNames[] = {"Plain", "TiedEmbeddings",
                                    "ExpertsWithoutTokens"};
  return kNames[static_cast<int>(info.param)];
}

struct Grid {
  int world;
  int ep;
};

class ParityTest : public ::testing::TestWithParam<Variant> {
 protected:
  static void SetUpTestSuite() {
    ClusterOptions options;
    options.worker_flags = {"--released_memory=poison"};
    absl::StatusOr<std::unique_ptr<Cluster>> cluster = Cluster::Start(options);
    ASSERT_OK(cluster.status());
    cluster_ = cluster->release();
  }
  static void TearDownTestSuite() { delete cluster_; }

  void SetUp() override {
    const bool constant = GetParam() == Variant::kExpertsWithoutTokens;
    ASSERT_OK_AND_ASSIGN(data_, WriteDataset(constant ? "constant" : "random",
                                             4000, kVocab, constant));
  }

  Bits Run(const ClusterJob& options,
           v1::Dispatcher dispatcher = v1::DISPATCHER_ALLTOALL) {
    v1::TrainingJob job = MakeJob(options);
    job.mutable_parallel()->set_dispatcher(dispatcher);
    return Run(job, Describe(options));
  }

  // Empty when the job, which is called `what`, did not run.
  Bits Run(const v1::TrainingJob& job, const std::string& what) {
    Bits bits;
    absl::StatusOr<JobResult> result = cluster_->Run(job);
    EXPECT_OK(result.status());
    if (!result.ok()) return bits;
    EXPECT_EQ(result->job.state(), v1::JOB_STATE_SUCCEEDED)
        << what << ": " << result->job.message();
    for (const v1::StepMetrics& step : result->steps) {
      bits.losses.push_back(BitsOf(step.loss()));
      bits.norms.push_back(BitsOf(step.grad_norm()));
      if (GetParam() != Variant::kExpertsWithoutTokens) continue;
      // All tokens are alike and go to the same 2 of the 4 experts.
      EXPECT_EQ(step.expert_imbalance(), 2) << what;
    }
    bits.parameters = std::move(result->parameters);
    return bits;
  }

  // Compares the two orders, wgrad at once and delayed. Returns how many of
  // them ran, and what they agreed on.
  int CompareOrders(ClusterJob options, Bits* agreed) {
    int ran = 0;
    for (bool combined : {false, true}) {
      for (bool delay : {false, true}) {
        options.combined = combined;
        options.delay_wgrad = delay;
        const Bits bits = Run(options);
        if (bits.losses.size() != kSteps ||
            bits.parameters.size() != static_cast<size_t>(options.world)) {
          ADD_FAILURE() << Describe(options) << " left " << bits.losses.size()
                        << " steps and " << bits.parameters.size() << " files";
          continue;
        }
        if (ran++ == 0) {
          *agreed = bits;
          continue;
        }
        EXPECT_EQ(bits.losses, agreed->losses) << Describe(options);
        EXPECT_EQ(bits.norms, agreed->norms) << Describe(options);
        EXPECT_TRUE(bits.parameters == agreed->parameters)
            << Describe(options) << ": final parameters differ";
      }
    }
    return ran;
  }

  static Cluster* cluster_;
  std::string data_;
};

Cluster* ParityTest::cluster_ = nullptr;

TEST_P(ParityTest, DispatchersAgreeToTheBit) {
  constexpr Grid kGrids[] = {{2, 2}, {4, 2}, {4, 4}};
  for (const Grid& grid : kGrids) {
    ClusterJob options;
    options.data = data_;
    options.steps = kSteps;
    options.world = grid.world;
    options.ep = grid.ep;
    options.microbatches = 2;
    options.tied = GetParam() == Variant::kTiedEmbeddings;
    options.combined = true;
    options.delay_wgrad = true;
    const Bits expected = Run(options);
    ASSERT_EQ(expected.losses.size(), kSteps);
    SCOPED_TRACE(Describe(options));
    for (const auto dispatcher :
         {v1::DISPATCHER_ALLGATHER, v1::DISPATCHER_FLEX}) {
      SCOPED_TRACE(v1::Dispatcher_Name(dispatcher));
      const Bits bits = Run(options, dispatcher);
      EXPECT_EQ(bits.losses, expected.losses);
      EXPECT_EQ(bits.norms, expected.norms);
      EXPECT_TRUE(bits.parameters == expected.parameters);
    }
  }
}

TEST_P(ParityTest, WhatIsComputedAgainAgreesToTheBit) {
  v1::RecomputeConfig parts;
  parts.add_parts(v1::RECOMPUTE_PART_NORM);
  parts.add_parts(v1::RECOMPUTE_PART_MOE_ACTIVATION);
  parts.add_parts(v1::RECOMPUTE_PART_ATTENTION_CORE);
  v1::RecomputeConfig full;
  full.set_full(true);
  ClusterJob options;
  options.data = data_;
  options.steps = kSteps;
  options.world = 4;
  options.ep = 2;
  options.microbatches = 3;
  options.tied = GetParam() == Variant::kTiedEmbeddings;
  options.delay_wgrad = true;
  const Bits expected = Run(MakeJob(options), Describe(options));
  ASSERT_EQ(expected.losses.size(), kSteps);
  for (bool combined : {false, true}) {
    options.combined = combined;
    for (const v1::RecomputeConfig& recompute : {parts, full}) {
      v1::TrainingJob job = MakeJob(options);
      *job.mutable_schedule()->mutable_recompute() = recompute;
      const std::string what =
          absl::StrCat(Describe(options), " ", recompute.ShortDebugString());
      const Bits bits = Run(job, what);
      EXPECT_EQ(bits.losses, expected.losses) << what;
      EXPECT_EQ(bits.norms, expected.norms) << what;
      EXPECT_TRUE(bits.parameters == expected.parameters) << what;
    }
  }
}

TEST_P(ParityTest, OrdersAndDelaysAgreeToTheBit) {
  constexpr Grid kGrids[] = {{1, 1}, {2, 1}, {2, 2}, {4, 1}, {4, 2}, {4, 4}};
  int ran = 0;
  int cells = 0;
  for (const Grid& grid : kGrids) {
    for (int microbatches : {1, 2, 3, 5}) {
      Bits by_strategy[2];
      for (bool no_shard : {false, true}) {
        ClusterJob options;
        options.data = data_;
        options.steps = kSteps;
        options.world = grid.world;
        options.ep = grid.ep;
        options.microbatches = microbatches;
        options.no_shard = no_shard;
        options.tied = GetParam() == Variant::kTiedEmbeddings;
        const int ran_here = CompareOrders(options, &by_strategy[no_shard]);
        EXPECT_EQ(ran_here, 4) << "an empty cell: " << Describe(options);
        ran += ran_here;
        ++cells;
      }
      // With one microbatch or one rank the strategies sum in one order.
      if (microbatches == 1 || grid.world == 1) {
        EXPECT_EQ(by_strategy[0].losses, by_strategy[1].losses);
        EXPECT_EQ(by_strategy[0].norms, by_strategy[1].norms);
      }
    }
  }
  std::cout << ran << " jobs ran in " << cells << " cells\n";
  EXPECT_EQ(cells, 48);
}

INSTANTIATE_TEST_SUITE_P(Variants, ParityTest,
                         ::testing::Values(Variant::kPlain,
                                           Variant::kTiedEmbeddings,
                                           Variant::kExpertsWithoutTokens),
                         &NameOf);

}  // namespace
}  // namespace weft::testing

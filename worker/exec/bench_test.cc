// What a step tells about itself, and steps that are changed to be timed.
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/exec/engine.h"
#include "worker/exec/testing/local_world.h"

namespace weft::exec {
namespace {

using testing::LocalWorld;
using testing::LocalWorldOptions;
using testing::MakeJob;
using testing::TinyJob;

constexpr int kSteps = 3;

// Metrics of rank 0.
std::vector<v1::StepMetrics> MetricsOf(const v1::BenchConfig& bench) {
  TinyJob tiny;
  tiny.world = 2;
  tiny.ep = 2;
  tiny.microbatches = 2;
  tiny.steps = kSteps;
  LocalWorldOptions options;
  options.job = MakeJob(tiny);
  *options.job.mutable_bench() = bench;
  auto world = LocalWorld::Create(std::move(options));
  EXPECT_OK(world.status());
  auto results = (*world)->RunSteps(kSteps);
  EXPECT_OK(results.status());
  std::vector<v1::StepMetrics> metrics;
  for (const StepResult& step : (*results)[0]) metrics.push_back(step.metrics);
  return metrics;
}

TEST(BenchTest, AStepCountsItsWaitsAndTakesNoMemory) {
  const std::vector<v1::StepMetrics> steps = MetricsOf({});
  for (const v1::StepMetrics& step : steps) {
    // One for the counts of each layer and microbatch.
    EXPECT_EQ(step.host_waits(), 2 * 2);
    EXPECT_EQ(step.allocations(), 0);
    EXPECT_GT(step.launch_seconds(), 0);
    ASSERT_EQ(step.streams_size(), 4);
    EXPECT_EQ(step.streams(0).stream(), "compute");
    EXPECT_GT(step.streams(0).busy_seconds(), 0);
    EXPECT_LE(step.streams(0).busy_seconds(), step.step_seconds());
  }
}

TEST(BenchTest, AStepSaysWhatDeviceMemoryHolds) {
  TinyJob tiny;
  tiny.world = 2;
  tiny.ep = 2;
  LocalWorldOptions options;
  options.job = MakeJob(tiny);
  ASSERT_OK_AND_ASSIGN(auto world, LocalWorld::Create(std::move(options)));
  ASSERT_OK_AND_ASSIGN(const auto results, world->RunSteps(1));
  const v1::StepMetrics& step = results[0][0].metrics;
  std::map<std::string, int64_t> memory;
  int64_t all = 0;
  for (const v1::MemoryUse& use : step.memory()) {
    memory[use.category()] = use.bytes();
    all += use.bytes();
  }
  EXPECT_EQ(memory.size(), 7);
  EXPECT_EQ(all, world->device(0).bytes_in_use());
  using device::MemoryCategory;
  EXPECT_EQ(memory["optimizer"],
            world->device(0).bytes_in_use(MemoryCategory::kOptimizer));
  EXPECT_GT(memory["gathered"], 0);
  EXPECT_GT(memory["activations"], 0);
  EXPECT_EQ(memory["activations"] + memory["gathered"],
            world->device(0).bytes_in_use(MemoryCategory::kArena));
  EXPECT_EQ(memory["workspace"], 0);  // a CPU's streams have none
}

TEST(BenchTest, BalancedRoutingGivesAllExpertsAsMuch) {
  v1::BenchConfig bench;
  bench.set_balanced_routing(true);
  for (const v1::StepMetrics& step : MetricsOf(bench)) {
    EXPECT_EQ(step.expert_imbalance(), 1);
  }
}

TEST(BenchTest, ExchangesAreLeftOutAfterTheFirstStep) {
  v1::BenchConfig bench;
  bench.set_balanced_routing(true);
  bench.set_exchanges(v1::EXCHANGES_LEFT_OUT);
  const std::vector<v1::StepMetrics> steps = MetricsOf(bench);
  EXPECT_GT(steps[0].ep_wire_bytes(), 0);
  EXPECT_EQ(steps[1].ep_wire_bytes(), 0);
  EXPECT_EQ(steps[2].ep_wire_bytes(), 0);
  EXPECT_GT(steps[2].streams(0).busy_seconds(), 0);
}

TEST(BenchTest, ExchangesAloneAreThoseOfTheFirstStep) {
  v1::BenchConfig bench;
  bench.set_exchanges(v1::EXCHANGES_ALONE);
  const std::vector<v1::StepMetrics> steps = MetricsOf(bench);
  EXPECT_GT(steps[0].ep_wire_bytes(), 0);
  EXPECT_EQ(steps[1].ep_wire_bytes(), steps[0].ep_wire_bytes());
  EXPECT_EQ(steps[2].ep_wire_bytes(), steps[0].ep_wire_bytes());
  EXPECT_EQ(steps[2].step(), 3);
  EXPECT_EQ(steps[2].loss(), 0);
}

}  // namespace
}  // namespace weft::exec

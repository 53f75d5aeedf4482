// A release frees, and no rank holds what is another's.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "schedule/memory_plan.h"
#include "schedule/simulate.h"
#include "worker/exec/lifetimes.h"
#include "worker/exec/testing/local_world.h"

namespace weft::exec {
namespace {

using device::MemoryCategory;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::LocalWorld;
using testing::LocalWorldOptions;
using testing::MakeJob;
using testing::TinyJob;

// Large enough that buckets and activations are many pages.
TinyJob PagesJob() {
  TinyJob tiny;
  tiny.world = 2;
  tiny.ep = 2;
  tiny.microbatches = 3;
  tiny.delay_wgrad = true;
  tiny.hidden = 64;
  tiny.sequence_length = 64;
  tiny.eval_batches = 1;
  return tiny;
}

absl::StatusOr<int64_t> LargestExcess(TinyJob tiny, ReleasedMemory released) {
  LocalWorldOptions options;
  options.job = MakeJob(tiny);
  options.released_memory = released;
  options.check_live_set = true;
  ASSIGN_OR_RETURN(auto world, LocalWorld::Create(std::move(options)));
  RETURN_IF_ERROR(world->RunSteps(2).status());
  RETURN_IF_ERROR(world->ForEachRank(
      [](int, Engine& engine) { return engine.RunEval(1).status(); }));
  RETURN_IF_ERROR(world->RunSteps(1).status());
  int64_t excess = 0;
  for (int rank = 0; rank < world->size(); ++rank) {
    excess = std::max(excess, world->engine(rank).live_set_excess_bytes());
  }
  return excess;
}

TEST(MemoryTest, ResidentBytesNeverExceedThePlansLiveSet) {
  for (bool combined : {true, false}) {
    TinyJob tiny = PagesJob();
    tiny.combined = combined;
    EXPECT_THAT(LargestExcess(tiny, ReleasedMemory::kReturn), IsOkAndHolds(0));
    tiny.more = "fsdp { buffer_slots: 2 prefetch_bytes: 100000 }";
    EXPECT_THAT(LargestExcess(tiny, ReleasedMemory::kReturn), IsOkAndHolds(0));
  }
}

// Then most pages are those that hold the ends of values.
TEST(MemoryTest, NeitherDoTheyWhenValuesAreSmallerThanPages) {
  for (const bool has_taps : {false, true}) {
    TinyJob tiny;
    tiny.microbatches = 4;
    tiny.sequences = 2;
    tiny.sequence_length = 8;
    tiny.layers = 2;
    tiny.dense_layers = 0;
    tiny.shared_expert = false;
    tiny.eval_batches = 1;
    if (has_taps) tiny.more = "output { tap_step: 1 taps: 'head.logits' }";
    EXPECT_THAT(LargestExcess(tiny, ReleasedMemory::kReturn), IsOkAndHolds(0));
  }
}

TEST(MemoryTest, MemoryThatIsNotReturnedShows) {
  ASSERT_OK_AND_ASSIGN(const int64_t excess,
                       LargestExcess(PagesJob(), ReleasedMemory::kPoison));
  EXPECT_GT(excess, 10 * 4096);
}

// Makes one node read an earlier, released copy of its bucket, which gets
// memory of its own: nothing is written there afterwards.
void ReadAReleasedBucket(schedule::Program& program) {
  const std::vector<ValueLifetime> lifetimes = LifetimesOf(program);
  for (int id = 0; id < program.ops.size(); ++id) {
    for (schedule::ParamUse& use : program.ops[id].params) {
      for (int v = 0; v < use.value; ++v) {
        schedule::Value& earlier = program.values[v];
        if (earlier.kind != schedule::ValueKind::kGathered) continue;
        if (earlier.bucket != program.values[use.value].bucket) continue;
        if (lifetimes[v].dead_after >= id) continue;
        use.value = v;
        earlier.offset = program.arena_bytes;
        program.arena_bytes += (earlier.bytes + 4095) / 4096 * 4096;
        return;
      }
    }
  }
  FAIL() << "no bucket is gathered twice";
}

TEST(MemoryTest, AReadAfterReleaseReadsPoison) {
  LocalWorldOptions options;
  TinyJob tiny;
  tiny.world = 2;
  options.job = MakeJob(tiny);
  options.edit = &ReadAReleasedBucket;
  options.trust_edit = true;
  ASSERT_OK_AND_ASSIGN(auto world, LocalWorld::Create(std::move(options)));
  EXPECT_THAT(world->RunSteps(1).status(),
              StatusIs(absl::StatusCode::kOutOfRange));
}

TEST(MemoryTest, MeasuredMemoryIsWhatTheSimulatorSaysOfTheRowsRouted) {
  TinyJob tiny = PagesJob();
  tiny.hidden = 256;
  tiny.sequence_length = 256;
  LocalWorldOptions options;
  options.job = MakeJob(tiny);
  options.released_memory = ReleasedMemory::kReturn;
  options.measure_memory = true;
  ASSERT_OK_AND_ASSIGN(auto world, LocalWorld::Create(std::move(options)));
  ASSERT_OK_AND_ASSIGN(const auto results, world->RunSteps(2));
  const schedule::Plan& plan = world->plan();
  for (int rank = 0; rank < world->size(); ++rank) {
    const StepResult& step = results[rank].back();
    EXPECT_EQ(step.metrics.peak_device_bytes(), step.measured_peak_bytes);
    std::vector<schedule::OpTime> times;
    for (const Span& span : step.spans) {
      times.push_back({1e-9 * static_cast<double>(span.begin_ns),
                       1e-9 * static_cast<double>(span.end_ns)});
    }
    const schedule::RoutedRows rows = {plan.train.microbatches,
                                       step.received_rows};
    const int64_t beside =
        world->device(rank).bytes_in_use() -
        world->device(rank).bytes_in_use(MemoryCategory::kArena);
    const int64_t expected = beside + schedule::PeakBytes(schedule::MemoryCurve(
                                          plan, plan.train, times, rows));
    // Samples are taken between ops, scratch is not used to its end, and pages
    // that hold two values stay.
    EXPECT_LT(step.measured_peak_bytes, 1.1 * expected) << rank;
    EXPECT_GT(step.measured_peak_bytes, 0.7 * expected) << rank;
    EXPECT_LT(step.measured_peak_bytes, world->device(rank).bytes_in_use());
  }
}

TEST(MemoryTest, OnlyReturnedMemoryIsMeasured) {
  LocalWorldOptions options;
  options.job = MakeJob(PagesJob());
  options.measure_memory = true;
  EXPECT_THAT(LocalWorld::Create(std::move(options)).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("needs released memory to be returned")));
}

TEST(MemoryTest, ReturningPagesChangesNoResult) {
  std::vector<double> losses[2];
  for (int i = 0; i < 2; ++i) {
    LocalWorldOptions options;
    options.job = MakeJob(PagesJob());
    options.released_memory =
        i == 0 ? ReleasedMemory::kKeep : ReleasedMemory::kReturn;
    ASSERT_OK_AND_ASSIGN(auto world, LocalWorld::Create(std::move(options)));
    ASSERT_OK_AND_ASSIGN(auto results, world->RunSteps(3));
    for (const StepResult& step : results[0]) {
      losses[i].push_back(step.metrics.loss());
    }
  }
  EXPECT_EQ(losses[0], losses[1]);
}

// The bytes of a category are those the device hands out.
void ExpectAllocated(const v1::MemoryPlan& plan, const device::Device& device) {
  EXPECT_EQ(plan.parameters() + plan.main_weights(),
            device.bytes_in_use(MemoryCategory::kParameters));
  EXPECT_EQ(plan.gradients(), device.bytes_in_use(MemoryCategory::kGradients));
  EXPECT_EQ(plan.optimizer(), device.bytes_in_use(MemoryCategory::kOptimizer));
  EXPECT_EQ(plan.static_values() + plan.routed_values(),
            device.bytes_in_use(MemoryCategory::kArena) +
                device.bytes_in_use(MemoryCategory::kStaging));
  EXPECT_EQ(schedule::TotalBytes(plan), device.bytes_in_use());
  EXPECT_EQ(schedule::TotalBytes(plan), device.peak_bytes());
}

void ExpectAllocatedAsPlanned(const TinyJob& tiny) {
  LocalWorldOptions options;
  options.job = MakeJob(tiny);
  SCOPED_TRACE(options.job.ShortDebugString());
  ASSERT_OK_AND_ASSIGN(auto local, LocalWorld::Create(std::move(options)));
  const v1::MemoryPlan plan = schedule::PlanMemory(local->plan());
  EXPECT_GT(plan.routed_values(), 0);
  for (int rank = 0; rank < local->size(); ++rank) {
    ExpectAllocated(plan, local->device(rank));
  }
}

TEST(MemoryTest, AWorkerAllocatesWhatThePlanSays) {
  for (const auto strategy :
       {v1::SHARDING_STRATEGY_NO_SHARD, v1::SHARDING_STRATEGY_OPTIM,
        v1::SHARDING_STRATEGY_OPTIM_GRADS,
        v1::SHARDING_STRATEGY_OPTIM_GRADS_PARAMS}) {
    for (const auto& [world, ep] :
         {std::pair(1, 1), std::pair(2, 1), std::pair(2, 2), std::pair(4, 2)}) {
      TinyJob tiny;
      tiny.world = world;
      tiny.ep = ep;
      tiny.microbatches = 2;
      tiny.strategy = strategy;
      tiny.eval_batches = world == 4 ? 1 : 0;
      ExpectAllocatedAsPlanned(tiny);
      tiny.gradients = v1::NUMBER_FORMAT_BF16;
      ExpectAllocatedAsPlanned(tiny);
      tiny.compute = v1::NUMBER_FORMAT_BF16;
      ExpectAllocatedAsPlanned(tiny);
    }
  }
}

LocalWorldOptions BoundedTo(double factor) {
  TinyJob tiny;
  tiny.world = 4;
  tiny.ep = 2;
  tiny.microbatches = 2;
  LocalWorldOptions options;
  options.job = MakeJob(tiny);
  options.job.mutable_model()->mutable_moe()->set_max_rows_factor(factor);
  return options;
}

TEST(MemoryTest, ABoundOnRoutedRowsTakesLessMemoryAndChangesNoResult) {
  ASSERT_OK_AND_ASSIGN(auto all, LocalWorld::Create(BoundedTo(0)));
  ASSERT_OK_AND_ASSIGN(auto bounded, LocalWorld::Create(BoundedTo(1.9)));
  EXPECT_LT(schedule::PlanMemory(bounded->plan()).routed_values(),
            schedule::PlanMemory(all->plan()).routed_values());
  ASSERT_OK(all->RunSteps(2).status());
  ASSERT_OK(bounded->RunSteps(2).status());
  ASSERT_OK_AND_ASSIGN(const auto expected, all->Parameters());
  EXPECT_THAT(bounded->Parameters(), IsOkAndHolds(expected));
}

TEST(MemoryTest, MoreRowsThanTheBoundFailTheStepOnEveryRank) {
  LocalWorldOptions options = BoundedTo(1);
  // Every row goes to the same two experts: one rank may get all of them.
  options.samples = testing::SyntheticSamples::Kind::kConstant;
  ASSERT_OK_AND_ASSIGN(auto world, LocalWorld::Create(std::move(options)));
  EXPECT_THAT(
      world->RunSteps(1).status(),
      StatusIs(absl::StatusCode::kResourceExhausted,
               AllOf(HasSubstr("step 1: op "),
                     HasSubstr("(F0 layers.1.dispatch, microbatch 0): "),
                     HasSubstr("rows routed to the ranks of the EP group are"),
                     HasSubstr("the plan has room for 12 on a rank"))));
  for (int rank = 0; rank < world->size(); ++rank) {
    EXPECT_FALSE(world->device(rank).status().ok()) << rank;
  }
}

TEST(MemoryTest, ARankHoldsItsSlicesOfTheMainWeights) {
  TinyJob tiny;
  tiny.world = 4;
  tiny.ep = 2;
  LocalWorldOptions options;
  options.job = MakeJob(tiny);
  ASSERT_OK_AND_ASSIGN(auto world, LocalWorld::Create(std::move(options)));
  int64_t elements = 0;
  for (const fsdp::Bucket& bucket : world->plan().units.buckets) {
    elements += bucket.elements / bucket.group_size;
  }
  for (int rank = 0; rank < world->size(); ++rank) {
    EXPECT_EQ(world->engine(rank).main_weight_bytes(), 4 * elements);
    const device::Device& device = world->device(rank);
    EXPECT_EQ(device.bytes_in_use(MemoryCategory::kParameters), 4 * elements);
    EXPECT_EQ(device.bytes_in_use(MemoryCategory::kGradients), 4 * elements);
    EXPECT_EQ(device.bytes_in_use(MemoryCategory::kOptimizer), 8 * elements);
    EXPECT_EQ(device.bytes_in_use(MemoryCategory::kArena),
              world->plan().train.arena_bytes);
  }
}

// Bytes of the optimizer's state on rank 0, and what the plan says of all
// state.
std::pair<int64_t, int64_t> OptimizerAndStateBytes(const std::string& more) {
  TinyJob tiny;
  tiny.world = 2;
  tiny.more = more;
  LocalWorldOptions options;
  options.job = MakeJob(tiny);
  auto world = LocalWorld::Create(std::move(options));
  EXPECT_OK(world.status());
  return {(*world)->device(0).bytes_in_use(MemoryCategory::kOptimizer),
          schedule::Summarize((*world)->plan()).state_bytes()};
}

TEST(MemoryTest, FrozenParametersHaveWeightsOnly) {
  for (const auto strategy : {v1::SHARDING_STRATEGY_NO_SHARD,
                              v1::SHARDING_STRATEGY_OPTIM_GRADS_PARAMS}) {
    TinyJob tiny;
    tiny.world = 2;
    tiny.strategy = strategy;
    tiny.more =
        "optimizer { groups { parameters: ['layers.1.*', '*.experts.*'] "
        "frozen: true } }";
    LocalWorldOptions options;
    options.job = MakeJob(tiny);
    ASSERT_OK_AND_ASSIGN(auto world, LocalWorld::Create(std::move(options)));
    const bool whole = strategy == v1::SHARDING_STRATEGY_NO_SHARD;
    int64_t all = 0;
    int64_t learning = 0;
    for (const fsdp::Bucket& bucket : world->plan().units.buckets) {
      const int64_t bytes =
          4 * (whole ? bucket.elements : bucket.slice_elements());
      all += bytes;
      if (!bucket.frozen) learning += bytes;
    }
    EXPECT_LT(learning, all);
    const device::Device& device = world->device(0);
    EXPECT_EQ(device.bytes_in_use(MemoryCategory::kParameters), all);
    EXPECT_EQ(device.bytes_in_use(MemoryCategory::kGradients), learning);
    EXPECT_EQ(device.bytes_in_use(MemoryCategory::kOptimizer), 2 * learning);
    EXPECT_EQ(schedule::Summarize(world->plan()).state_bytes(),
              all + 3 * learning);
  }
}

TEST(MemoryTest, TheOptimizerKeepsWhatItNeeds) {
  const auto [adamw, adamw_state] = OptimizerAndStateBytes("");
  const auto [momentum, momentum_state] = OptimizerAndStateBytes(
      "optimizer { kind: OPTIMIZER_KIND_SGD momentum: 0.9 }");
  const auto [none, none_state] =
      OptimizerAndStateBytes("optimizer { kind: OPTIMIZER_KIND_SGD }");
  EXPECT_GT(adamw, 0);
  EXPECT_EQ(2 * momentum, adamw);
  EXPECT_EQ(none, 0);
  EXPECT_EQ(adamw_state - none_state, adamw);
  EXPECT_EQ(momentum_state - none_state, momentum);
}

// Of a job whose buckets are large enough for their padding not to matter.
absl::StatusOr<std::unique_ptr<LocalWorld>> RunIn(v1::NumberFormat compute,
                                                  v1::ShardingStrategy strategy,
                                                  StepResult* result) {
  TinyJob tiny = PagesJob();
  tiny.compute = compute;
  tiny.strategy = strategy;
  LocalWorldOptions options;
  options.job = MakeJob(tiny);
  ASSIGN_OR_RETURN(auto world, LocalWorld::Create(std::move(options)));
  ASSIGN_OR_RETURN(auto results, world->RunSteps(1));
  *result = results[0][0];
  return world;
}

// Of all values of a kind in the training program but scratch of attention.
int64_t BytesOf(const LocalWorld& world, schedule::ValueKind kind) {
  const schedule::Plan& plan = world.plan();
  int64_t bytes = 0;
  for (const schedule::Value& value : plan.train.values) {
    if (value.kind != kind) continue;
    const std::string name =
        value.decl >= 0 ? plan.model.values[value.decl].name : "";
    if (name.find("attn_scratch") == std::string::npos) bytes += value.bytes;
  }
  return bytes;
}

TEST(MemoryTest, InBf16GatheredWeightsAndActivationsTakeHalfTheBytes) {
  constexpr auto kStrategy = v1::SHARDING_STRATEGY_OPTIM_GRADS_PARAMS;
  StepResult wide;
  StepResult narrow;
  ASSERT_OK_AND_ASSIGN(auto wide_world,
                       RunIn(v1::NUMBER_FORMAT_FP32, kStrategy, &wide));
  ASSERT_OK_AND_ASSIGN(auto narrow_world,
                       RunIn(v1::NUMBER_FORMAT_BF16, kStrategy, &narrow));
  using schedule::ValueKind;
  const auto ratio = [&](ValueKind kind) {
    return static_cast<double>(BytesOf(*narrow_world, kind)) /
           static_cast<double>(BytesOf(*wide_world, kind));
  };
  EXPECT_NEAR(ratio(ValueKind::kGathered), 0.5, 0.01);
  EXPECT_NEAR(ratio(ValueKind::kGradient), 1, 0.01);
  // Routing and statistics stay wide.
  EXPECT_GT(ratio(ValueKind::kActivation), 0.5);
  EXPECT_LT(ratio(ValueKind::kActivation), 0.6);
  // A row of 64 numbers travels with its probability, in fp32, on two of the
  // four ways.
  const double row = (4 * 64 * 2.0 + 2 * 4) / (4 * 64 * 4 + 2 * 4);
  EXPECT_NEAR(static_cast<double>(narrow.metrics.ep_wire_bytes()) /
                  static_cast<double>(wide.metrics.ep_wire_bytes()),
              row, 0.02);  // a few tokens choose other experts
}

// The main weights stay; what nodes read of resident weights is a copy.
TEST(MemoryTest, InBf16ResidentWeightsAreCopiedAtHalfTheBytes) {
  StepResult result;
  ASSERT_OK_AND_ASSIGN(
      auto world,
      RunIn(v1::NUMBER_FORMAT_BF16, v1::SHARDING_STRATEGY_NO_SHARD, &result));
  const int64_t main = world->engine(0).main_weight_bytes();
  EXPECT_EQ(world->device(0).bytes_in_use(MemoryCategory::kParameters),
            main + main / 2);
  EXPECT_EQ(BytesOf(*world, schedule::ValueKind::kGathered), 0);
}

TEST(MemoryTest, GradientsInBf16TakeHalfTheBytes) {
  for (const auto strategy : {v1::SHARDING_STRATEGY_NO_SHARD,
                              v1::SHARDING_STRATEGY_OPTIM_GRADS_PARAMS}) {
    TinyJob tiny;
    tiny.world = 2;
    tiny.strategy = strategy;
    tiny.gradients = v1::NUMBER_FORMAT_BF16;
    LocalWorldOptions options;
    options.job = MakeJob(tiny);
    ASSERT_OK_AND_ASSIGN(auto world, LocalWorld::Create(std::move(options)));
    const device::Device& device = world->device(0);
    const int64_t weights = device.bytes_in_use(MemoryCategory::kParameters);
    EXPECT_EQ(weights, world->engine(0).main_weight_bytes());
    EXPECT_EQ(device.bytes_in_use(MemoryCategory::kGradients), weights / 2);
    EXPECT_EQ(device.bytes_in_use(MemoryCategory::kOptimizer), 2 * weights);
  }
}

}  // namespace
}  // namespace weft::exec

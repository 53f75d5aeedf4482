#include "worker/exec/replica_check.h"

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
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

constexpr v1::ShardingStrategy kStrategies[] = {
    v1::SHARDING_STRATEGY_NO_SHARD, v1::SHARDING_STRATEGY_OPTIM,
    v1::SHARDING_STRATEGY_OPTIM_GRADS,
    v1::SHARDING_STRATEGY_OPTIM_GRADS_PARAMS};

constexpr int kFlipped = 2;  // the rank

// A world of 4 whose job compares every second step.
class ReplicaCheckTest : public ::testing::Test {
 protected:
  LocalWorldOptions Options(v1::ShardingStrategy strategy, int ep) {
    TinyJob tiny;
    tiny.world = 4;
    tiny.ep = ep;
    tiny.microbatches = 2;
    tiny.steps = 9;
    tiny.strategy = strategy;
    LocalWorldOptions options;
    options.job = MakeJob(tiny);
    options.job.mutable_guards()->set_replica_check_steps(2);
    options.allocated = [this](int rank, MemoryCategory category,
                               device::Buffer& buffer) {
      if (rank == kFlipped) buffers_[category] = &buffer;
    };
    return options;
  }

  // Flips a bit of what rank 2 holds.
  void Flip(MemoryCategory category, int64_t byte) {
    buffers_.at(category)->data()[byte] ^= std::byte{4};
  }

  std::map<MemoryCategory, device::Buffer*> buffers_;
};

TEST_F(ReplicaCheckTest, EqualReplicasPassInEveryStrategy) {
  for (const auto strategy : kStrategies) {
    for (const int ep : {1, 2, 4}) {
      ASSERT_OK_AND_ASSIGN(auto world,
                           LocalWorld::Create(Options(strategy, ep)));
      EXPECT_OK(world->RunSteps(9).status()) << strategy << " ep " << ep;
    }
  }
}

TEST_F(ReplicaCheckTest, AFlippedBitOfWholeWeightsNamesTheRank) {
  ASSERT_OK_AND_ASSIGN(auto world, LocalWorld::Create(Options(
                                       v1::SHARDING_STRATEGY_NO_SHARD, 1)));
  ASSERT_OK(world->RunSteps(2).status());
  Flip(MemoryCategory::kParameters, 0);
  ASSERT_OK(world->RunSteps(1).status());  // not a step that compares
  EXPECT_THAT(
      world->RunSteps(1).status(),
      StatusIs(absl::StatusCode::kDataLoss,
               AllOf(HasSubstr("step 4: the weights of root.dp differ between "
                               "ranks that hold them alike: those of rank 2 "
                               "are not those of ranks 0, 1 and 3"))));
}

TEST_F(ReplicaCheckTest, AFlippedBitOfMomentsNamesTheRank) {
  ASSERT_OK_AND_ASSIGN(auto world, LocalWorld::Create(Options(
                                       v1::SHARDING_STRATEGY_NO_SHARD, 1)));
  ASSERT_OK(world->RunSteps(3).status());
  Flip(MemoryCategory::kOptimizer, 3);
  // The moments move the weights of that step, so those differ, too.
  EXPECT_THAT(world->RunSteps(1).status(),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("of root.dp differ"),
                             HasSubstr("those of rank 2 are not"))));
}

// Experts live on ranks 0 and 2, or 1 and 3.
TEST_F(ReplicaCheckTest, TwoReplicasHaveNoMajority) {
  ASSERT_OK_AND_ASSIGN(auto world, LocalWorld::Create(Options(
                                       v1::SHARDING_STRATEGY_NO_SHARD, 2)));
  ASSERT_OK(world->RunSteps(2).status());
  const schedule::Plan& plan = world->plan();
  int64_t byte = 0;
  for (const fsdp::Bucket& bucket : plan.units.buckets) {
    if (bucket.axis == fsdp::Axis::kEdp) break;
    byte += bucket.elements * 4;
  }
  Flip(MemoryCategory::kParameters, byte);
  EXPECT_THAT(
      world->RunSteps(2).status(),
      StatusIs(absl::StatusCode::kDataLoss,
               AllOf(HasSubstr(".edp differ between ranks that hold them "
                               "alike: those of rank 2 are not those of rank "
                               "0, and no majority says which are right"))));
}

// A bit of a gathered bucket flips on one rank while it is there.
TEST_F(ReplicaCheckTest, AFlippedBitOfGatheredWeightsNamesTheRank) {
  for (const auto strategy : kStrategies) {
    if (strategy == v1::SHARDING_STRATEGY_NO_SHARD) continue;
    std::atomic<int> gathers{0};
    std::atomic<bool> flips{false};
    int64_t offset = -1;
    std::string name;
    LocalWorldOptions options = Options(strategy, 2);
    options.finished = [&](int rank, absl::string_view stream) {
      // The first op of the stream gathers a bucket.
      if (rank != kFlipped || stream != "gather") return;
      if (flips && ++gathers == 1) {
        // The lowest bit of a number: nothing else goes wrong.
        buffers_.at(MemoryCategory::kArena)->data()[offset] ^= std::byte{1};
      }
    };
    ASSERT_OK_AND_ASSIGN(auto world, LocalWorld::Create(std::move(options)));
    const schedule::Plan& plan = world->plan();
    for (const schedule::Op& op : plan.train.ops) {
      if (op.stream != schedule::StreamKind::kGather) continue;
      ASSERT_EQ(op.kind, schedule::OpKind::kGather);
      offset = plan.train.values[op.args[0]].offset;
      name = plan.units.units[plan.units.buckets[op.bucket].unit].name;
      break;
    }
    ASSERT_OK(world->RunSteps(1).status());
    flips = true;
    EXPECT_THAT(
        world->RunSteps(1).status(),
        StatusIs(absl::StatusCode::kDataLoss,
                 AllOf(HasSubstr(absl::StrCat("step 2: the gathered weights "
                                              "of ",
                                              name)),
                       HasSubstr("those of rank 2 are not those of"))));
  }
}

TEST_F(ReplicaCheckTest, TheLastStepIsCompared) {
  LocalWorldOptions options = Options(v1::SHARDING_STRATEGY_NO_SHARD, 1);
  options.job.mutable_guards()->set_replica_check_steps(100);
  options.job.set_steps(3);
  ASSERT_OK_AND_ASSIGN(auto world, LocalWorld::Create(std::move(options)));
  ASSERT_OK(world->RunSteps(2).status());
  Flip(MemoryCategory::kParameters, 0);
  EXPECT_THAT(world->RunSteps(1).status(),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("step 3: ")));
}

TEST_F(ReplicaCheckTest, NothingIsComparedWhenTheJobSaysSo) {
  LocalWorldOptions options = Options(v1::SHARDING_STRATEGY_NO_SHARD, 1);
  options.job.mutable_guards()->set_replica_check_steps(0);
  ASSERT_OK_AND_ASSIGN(auto world, LocalWorld::Create(std::move(options)));
  ASSERT_OK(world->RunSteps(2).status());
  Flip(MemoryCategory::kParameters, 0);
  EXPECT_OK(world->RunSteps(7).status());
}

}  // namespace
}  // namespace weft::exec

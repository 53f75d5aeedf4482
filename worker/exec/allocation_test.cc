// A step allocates nothing: counted over all threads of all ranks, by standing
// in for operator new.
#include <atomic>
#include <cstdlib>
#include <new>

#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/status_matchers.h"
#include "gtest/gtest.h"
#include "worker/exec/testing/local_world.h"

namespace {

std::atomic<bool> counting{false};
std::atomic<int64_t> allocations{0};

}  // namespace

void* operator new(std::size_t size) {
  if (counting.load(std::memory_order_relaxed)) ++allocations;
  void* memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) std::abort();
  return memory;
}
void* operator new[](std::size_t size) { return operator new(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace weft::exec {
namespace {

using testing::LocalWorld;
using testing::LocalWorldOptions;
using testing::MakeJob;
using testing::TinyJob;

// Runs two steps to warm up, then counts over three.
absl::StatusOr<int64_t> AllocationsOfThreeSteps(const TinyJob& tiny) {
  LocalWorldOptions options;
  options.job = MakeJob(tiny);
  options.released_memory = ReleasedMemory::kKeep;
  ASSIGN_OR_RETURN(auto world, LocalWorld::Create(std::move(options)));
  BlockingCounter warm(tiny.world);
  BlockingCounter counted(tiny.world);
  RETURN_IF_ERROR(world->ForEachRank([&](int rank, Engine& engine) {
    StepResult result;
    for (int step = 1; step <= 2; ++step) {
      RETURN_IF_ERROR(engine.RunStep(step, 0, &result));
    }
    warm.DecrementCount();
    warm.Wait();
    counting = true;
    for (int step = 3; step <= 5; ++step) {
      RETURN_IF_ERROR(engine.RunStep(step, 0, &result));
    }
    counted.DecrementCount();
    counted.Wait();
    counting = false;
    return absl::OkStatus();
  }));
  return allocations.exchange(0);
}

TEST(AllocationTest, TheCounterCounts) {
  counting = true;
  void* memory = ::operator new(8);
  counting = false;
  EXPECT_NE(memory, nullptr);
  ::operator delete(memory);
  EXPECT_EQ(allocations.exchange(0), 1);
}

TEST(AllocationTest, AStepAllocatesNothing) {
  for (int strategy = v1::SHARDING_STRATEGY_NO_SHARD;
       strategy <= v1::SHARDING_STRATEGY_OPTIM_GRADS_PARAMS; ++strategy) {
    TinyJob tiny;
    tiny.world = 2;
    tiny.ep = 2;
    tiny.microbatches = 3;
    tiny.delay_wgrad = true;
    tiny.router_losses = true;
    tiny.loss_mask = true;
    tiny.strategy = static_cast<v1::ShardingStrategy>(strategy);
    tiny.steps = 5;
    EXPECT_THAT(AllocationsOfThreeSteps(tiny), IsOkAndHolds(0)) << strategy;
  }
}

TEST(AllocationTest, NorDoesThatOfAHybridStackWithACapacity) {
  TinyJob tiny;
  tiny.world = 2;
  tiny.ep = 2;
  tiny.microbatches = 3;
  tiny.dense_layers = 0;
  tiny.router_losses = true;
  tiny.steps = 5;
  tiny.more =
      "model { num_layers: 0 ffn_hidden_size: 20 pattern: '[M*E]M[+-]E' "
      "mamba { num_heads: 4 head_dim: 6 num_groups: 2 state_size: 5 } "
      "mla { q_lora_rank: 10 kv_lora_rank: 6 qk_nope_head_dim: 3 "
      "qk_rope_head_dim: 2 v_head_dim: 5 } "
      "moe { score_function: SCORE_FUNCTION_SIGMOID "
      "expert_bias { update_rate: 0.02 } capacity { factor: 0.75 } } }";
  EXPECT_THAT(AllocationsOfThreeSteps(tiny), IsOkAndHolds(0));
}

}  // namespace
}  // namespace weft::exec

#include "worker/exec/testing/parity.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/sanitized.h"
#include "base/status_matchers.h"

namespace weft::exec::testing {
namespace {

// Sanitizers look for faults, not for bits: they get fewer worlds, orders and
// steps.
const bool kSanitized = IsSanitized();

}  // namespace

std::string Describe(const TinyJob& tiny) {
  return absl::StrCat("world ", tiny.world, " ep ", tiny.ep, " microbatches ",
                      tiny.microbatches, tiny.combined ? " combined" : " seq",
                      tiny.delay_wgrad ? " delayed" : " at once", " ",
                      v1::ShardingStrategy_Name(tiny.strategy),
                      tiny.tied ? " tied" : "", " ", tiny.more);
}

ParityTest::ParityTest() : few_orders_(kSanitized) {}

void ParityTest::CompareOrders(TinyJob tiny, SyntheticSamples::Kind samples,
                               Outcome* reference) {
  tiny.combined = false;
  tiny.delay_wgrad = false;
  ASSERT_OK_AND_ASSIGN(*reference, Train(tiny, samples));
  for (const auto& [combined, delay] :
       {std::pair(false, true), {true, false}, {true, true}}) {
    if (few_orders_ && !(combined && delay)) continue;
    tiny.combined = combined;
    tiny.delay_wgrad = delay;
    ASSERT_OK_AND_ASSIGN(Outcome outcome, Train(tiny, samples));
    EXPECT_EQ(Difference(*reference, outcome), "") << Describe(tiny);
  }
}

void ParityTest::CompareAll(TinyJob tiny, SyntheticSamples::Kind samples) {
  std::tie(tiny.world, tiny.ep) = GetParam();
  if (kSanitized) tiny.steps = 2;
  std::map<v1::ShardingStrategy, Outcome> by_strategy;
  for (const auto strategy : kStrategies) {
    tiny.strategy = strategy;
    ASSERT_NO_FATAL_FAILURE(
        CompareOrders(tiny, samples, &by_strategy[strategy]));
  }
  auto expect_equal = [&](v1::ShardingStrategy a, v1::ShardingStrategy b) {
    EXPECT_EQ(Difference(by_strategy.at(a), by_strategy.at(b)), "")
        << v1::ShardingStrategy_Name(a) << " and " << Describe(tiny);
  };
  // These accumulate on each rank and reduce once a step ...
  expect_equal(v1::SHARDING_STRATEGY_NO_SHARD, v1::SHARDING_STRATEGY_OPTIM);
  // ... and these reduce every microbatch.
  expect_equal(v1::SHARDING_STRATEGY_OPTIM_GRADS,
               v1::SHARDING_STRATEGY_OPTIM_GRADS_PARAMS);
  if (tiny.microbatches == 1 || tiny.world == 1) {
    expect_equal(v1::SHARDING_STRATEGY_NO_SHARD,
                 v1::SHARDING_STRATEGY_OPTIM_GRADS_PARAMS);
  }
}

std::string WorldName(
    const ::testing::TestParamInfo<std::tuple<int, int>>& info) {
  return absl::StrCat("World", std::get<0>(info.param), "Ep",
                      std::get<1>(info.param));
}

std::vector<std::tuple<int, int>> Worlds() {
  if (kSanitized) return {{1, 1}, {2, 2}, {4, 2}};
  return {{1, 1}, {2, 1}, {2, 2}, {4, 1}, {4, 2}, {4, 4}};
}

void CompareWithOneRankThatSeesTheSameTokens(const TinyJob& tiny) {
  for (const auto& [world, ep] : Worlds()) {
    TinyJob many = tiny;
    many.world = world;
    many.ep = ep;
    TinyJob one = tiny;
    one.sequences = world * tiny.sequences;
    for (int& sequences : one.uneven) sequences *= world;
    ASSERT_OK_AND_ASSIGN(Outcome a, Train(many, SyntheticSamples::Kind::kRule));
    ASSERT_OK_AND_ASSIGN(Outcome b, Train(one, SyntheticSamples::Kind::kRule));
    for (size_t i = 0; i < a.losses.size(); ++i) {
      EXPECT_NEAR(a.losses[i] / b.losses[i], 1, 2e-6)
          << "world " << world << " ep " << ep << " step " << i + 1;
      EXPECT_NEAR(a.norms[i] / b.norms[i], 1, 3e-5)
          << "world " << world << " ep " << ep << " step " << i + 1;
    }
    ASSERT_EQ(a.objectives.size(), b.objectives.size());
    for (size_t i = 0; i < a.objectives.size(); ++i) {
      EXPECT_NEAR(a.objectives[i] / b.objectives[i], 1, 2e-6)
          << "world " << world << " ep " << ep << " number " << i;
    }
  }
}

}  // namespace weft::exec::testing

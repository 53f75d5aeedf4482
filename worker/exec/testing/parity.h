// Bitwise parity: how a step is ordered, and what is sharded, changes no bit of
// losses or parameters where the design says so. What tests of it share.
#ifndef WEFT_WORKER_EXEC_TESTING_PARITY_H_
#define WEFT_WORKER_EXEC_TESTING_PARITY_H_

#include <string>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "worker/exec/testing/outcome.h"
#include "worker/exec/testing/tiny_job.h"

namespace weft::exec::testing {

inline constexpr v1::ShardingStrategy kStrategies[] = {
    v1::SHARDING_STRATEGY_NO_SHARD, v1::SHARDING_STRATEGY_OPTIM,
    v1::SHARDING_STRATEGY_OPTIM_GRADS,
    v1::SHARDING_STRATEGY_OPTIM_GRADS_PARAMS};

std::string Describe(const TinyJob& tiny);

// World size and EP size.
class ParityTest : public ::testing::TestWithParam<std::tuple<int, int>> {
 protected:
  ParityTest();

  // Runs the job in all orders.
  void CompareOrders(TinyJob tiny, SyntheticSamples::Kind samples,
                     Outcome* reference);
  // And with all strategies.
  void CompareAll(TinyJob tiny, SyntheticSamples::Kind samples);

  // Of what does not depend on the order, the two ends of it suffice.
  bool few_orders_;
};

std::vector<std::tuple<int, int>> Worlds();
std::string WorldName(
    const ::testing::TestParamInfo<std::tuple<int, int>>& info);

// Where the order of a sum must differ, runs agree within the design's bounds.
void CompareWithOneRankThatSeesTheSameTokens(const TinyJob& tiny);

}  // namespace weft::exec::testing

#endif  // WEFT_WORKER_EXEC_TESTING_PARITY_H_

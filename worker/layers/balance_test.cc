// Counts that run over the microbatches of a step.
#include <cmath>
#include <memory>
#include <vector>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/comm/loopback/loopback.h"
#include "kernels/ops/testing/testing.h"
#include "model/decoder.h"
#include "worker/layers/node_table.h"

namespace weft::layers {
namespace {

namespace args = model::balance;

using ::testing::ElementsAre;

constexpr double kUnwritten = -1;

// What one microbatch's node reads and writes.
struct Balance {
  std::vector<int32_t> counts;
  std::vector<double> sums;
  std::vector<float> total = std::vector<float>(3, kUnwritten);
  std::vector<float> running = std::vector<float>(3, kUnwritten);
  double aux = kUnwritten;
  double global_aux = kUnwritten;
};

// Three experts, top-1, two tokens a microbatch.
class BalanceTest : public ::testing::Test {
 protected:
  BalanceTest() {
    shape_.experts = 3;
    shape_.top_k = 1;
    shape_.tokens = 2;
    shape_.router_loss = {1, 0, 1, 0};
    auto world = comm::LoopbackWorld::Create({});
    EXPECT_OK(world);
    auto dp = (*world)->CreateCommunicator("dp", {0}, 0);
    EXPECT_OK(dp);
    dp_ = *std::move(dp);
  }

  void Run(int microbatch, Balance* previous, Balance& balance) {
    std::vector<device::Tensor> slots(args::kLossWeights + 1);
    slots[args::kCounts] = {balance.counts.data(), DType::kI32};
    slots[args::kScoreSums] = {balance.sums.data(), DType::kF64};
    if (previous != nullptr) {
      slots[args::kPrevious] = {previous->running.data(), DType::kF32};
    }
    slots[args::kTotal] = {balance.total.data(), DType::kF32};
    slots[args::kRunning] = {balance.running.data(), DType::kF32};
    slots[args::kAux] = {&balance.aux, DType::kF64};
    slots[args::kGlobalAux] = {&balance.global_aux, DType::kF64};
    NodeContext ctx;
    ctx.shape = &shape_;
    ctx.args = slots.data();
    ctx.dp = dp_.get();
    ctx.microbatch = microbatch;
    const NodeFn forward =
        FindNode(model::NodeKind::kBalance, model::Phase::kForward);
    ASSERT_OK(forward(ctx, ops::testing::InlineStream()));
  }

  model::Shape shape_;
  std::unique_ptr<comm::Communicator> dp_;
};

TEST_F(BalanceTest, GlobalAuxTakesTheMeanCountsSoFar) {
  Balance first = {{2, 0, 0}, {1.5, 0.25, 0.25}};
  Balance second = {{0, 1, 1}, {0.5, 0.5, 1}};
  Run(0, nullptr, first);
  Run(1, &first, second);
  EXPECT_THAT(first.running, ElementsAre(2, 0, 0));
  EXPECT_THAT(second.total, ElementsAre(0, 1, 1));
  EXPECT_THAT(second.running, ElementsAre(2, 1, 1));
  // E / (k T^2) is 3 / 4.
  EXPECT_DOUBLE_EQ(first.aux, 0.75 * 2 * 1.5);
  EXPECT_DOUBLE_EQ(first.global_aux, first.aux);
  EXPECT_DOUBLE_EQ(second.aux, 0.75 * (0.5 + 1));
  EXPECT_DOUBLE_EQ(second.global_aux, 0.75 * (2 * 0.5 + 0.5 + 1) / 2);
}

}  // namespace
}  // namespace weft::layers

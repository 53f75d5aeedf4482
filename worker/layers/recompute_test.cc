// What backward computes again has the bits that forward's had.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status_matchers.h"
#include "gtest/gtest.h"
#include "worker/layers/testing/node_runner.h"

namespace weft::layers {
namespace {

using model::RecomputePart;
using testing::MakeShape;
using testing::NodeRunner;
using testing::SmallShape;

// Makes NaNs of what forward has written and is computed again. Returns how
// many values that are.
int PoisonRecomputed(NodeRunner& runner) {
  int poisoned = 0;
  const auto& values = runner.model().values;
  for (const model::ValueDecl& value : values) {
    absl::string_view name = value.name;
    if (!absl::ConsumeSuffix(&name, ".recomputed")) continue;
    for (size_t v = 0; v < values.size(); ++v) {
      if (values[v].name != name) continue;
      std::vector<std::byte>& memory = runner.value(v);
      std::fill(memory.begin(), memory.end(), std::byte{0xFF});
      ++poisoned;
    }
  }
  return poisoned;
}

struct RecomputeCase {
  std::string name;
  SmallShape shape;
};

class RecomputeTest : public ::testing::TestWithParam<RecomputeCase> {
 protected:
  void SetUp() override {
    NodeRunner kept(MakeShape(GetParam().shape));
    ASSERT_OK(kept.Forward());
    ASSERT_OK(kept.Backward());
    for (size_t p = 0; p < kept.model().params.size(); ++p) {
      grads_.push_back(kept.grad(p));
    }
  }

  // Returns how many values were computed again.
  int Compare(const model::Recompute& what) {
    SmallShape shape = GetParam().shape;
    shape.recompute = what;
    NodeRunner runner(MakeShape(shape));
    EXPECT_OK(runner.Forward());
    const int poisoned = PoisonRecomputed(runner);
    EXPECT_OK(runner.Backward());
    for (size_t p = 0; p < grads_.size(); ++p) {
      EXPECT_EQ(runner.grad(p), grads_[p]) << runner.model().params[p].name;
    }
    return poisoned;
  }

  std::vector<std::vector<float>> grads_;
};

TEST_P(RecomputeTest, GradientsAreThoseOfKeptValuesToTheBit) {
  model::Recompute all;
  int of_parts = 0;
  for (RecomputePart part :
       {RecomputePart::kNorm, RecomputePart::kMoeActivation,
        RecomputePart::kMlaUpProjection, RecomputePart::kAttentionCore,
        RecomputePart::kMlp, RecomputePart::kSharedExpert}) {
    SCOPED_TRACE(static_cast<int>(part));
    of_parts += Compare({{part}, false});
    all.parts.push_back(part);
  }
  EXPECT_GT(of_parts, 0);
  EXPECT_EQ(Compare(all), of_parts);
  EXPECT_GT(Compare({{}, true}), of_parts);
}

SmallShape Dense(SmallShape shape) {
  shape.moe = false;
  return shape;
}

SmallShape Mamba() {
  SmallShape shape;
  shape.mamba = true;
  shape.layers = 2;
  return shape;
}

SmallShape Latent(bool q_latent) {
  SmallShape shape;
  shape.mla = true;
  shape.q_latent = q_latent;
  return shape;
}

SmallShape Optional(bool bf16) {
  SmallShape shape;
  shape.layers = 2;
  shape.shared_ffn = 6;
  shape.shared_gate = true;
  shape.biases = true;
  shape.qk_norm = true;
  shape.scaled = true;
  shape.bf16 = bf16;
  shape.router_loss = {1, 1, 1, 1};
  return shape;
}

SmallShape Gathered(SmallShape shape) {
  shape.dispatcher = model::Dispatcher::kAllGather;
  return shape;
}

SmallShape Capacity(bool pad) {
  SmallShape shape = Optional(false);
  shape.sigmoid = true;
  shape.expert_bias = true;
  shape.capacity_factor = 0.6;
  shape.pad = pad;
  return shape;
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, RecomputeTest,
    ::testing::Values(RecomputeCase{"Dense", Dense({})},
                      RecomputeCase{"Moe", {}},
                      RecomputeCase{"Optional", Optional(false)},
                      RecomputeCase{"Bf16", Optional(true)},
                      RecomputeCase{"Gathered", Gathered(Optional(false))},
                      RecomputeCase{"Dropped", Capacity(false)},
                      RecomputeCase{"Padded", Capacity(true)},
                      RecomputeCase{"Mamba", Mamba()},
                      RecomputeCase{"DenseMamba", Dense(Mamba())},
                      RecomputeCase{"Latent", Latent(false)},
                      RecomputeCase{"LatentQueries", Latent(true)}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace weft::layers

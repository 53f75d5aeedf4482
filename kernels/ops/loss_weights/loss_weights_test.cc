#include "kernels/ops/loss_weights/loss_weights.h"

#include "gtest/gtest.h"
#include "kernels/ops/testing/testing.h"

namespace weft::ops {
namespace {

using testing::Floats;
using testing::InlineStream;
using testing::SameBits;
using testing::Unwritten;

// Of a microbatch of 24 tokens in a step of 60.
Floats Weights(bool over_step, const testing::Doubles& counted) {
  Floats weights = Unwritten(6);
  LossWeightsArgs args;
  args.ranks = counted.size() / 3;
  args.tokens = 24;
  args.step_tokens = 60;
  args.over_step = over_step;
  args.counted = counted.data();
  args.weights = weights.data();
  LossWeights(args, InlineStream());
  return weights;
}

TEST(LossWeightsTest, TokensOfAllRanksAreCounted) {
  EXPECT_TRUE(
      SameBits(Weights(false, {5, 20, 10, 7, 28, 14}), {2, 1, 1, 1, 1, 1}));
  EXPECT_TRUE(SameBits(Weights(true, {5, 20, 10, 7, 28, 14}),
                       {1.25, 1.25, 1, 1, 1.25, 1.25}));
}

TEST(LossWeightsTest, WhenAllTokensCountLossesWeighAsWithoutAMask) {
  EXPECT_TRUE(SameBits(Weights(false, {24, 60, 24}), {1, 1, 1, 1, 1, 1}));
  EXPECT_TRUE(SameBits(Weights(true, {24, 60, 24}), {1, 1, 1, 1, 1, 1}));
}

TEST(LossWeightsTest, RouterLossesAreMeansOverValidTokens) {
  EXPECT_TRUE(
      SameBits(Weights(false, {12, 60, 5, 12, 0, 7}), {1, 1, 4, 2, 4, 2}));
  EXPECT_TRUE(
      SameBits(Weights(true, {12, 30, 5, 12, 0, 7}), {2, 1, 4, 2, 4, 2}));
}

// Two ranks that count 12 of the microbatch's 24 tokens, all valid but 12, and
// 48 of the step's 60; and of two depths 6 and none.
TEST(LossWeightsTest, DepthsAreMeansOverLabelsOfTheirOwn) {
  const testing::Doubles counted = {5, 20, 8, 2, 0, 7, 28, 4, 4, 0};
  Floats depths = Unwritten(2);
  LossWeightsArgs args;
  args.ranks = 2;
  args.tokens = 24;
  args.step_tokens = 60;
  args.counted = counted.data();
  args.depths = 2;
  args.depth_factor = 0.5;
  args.depth_weights[0] = &depths[0];
  args.depth_weights[1] = &depths[1];
  LossWeights(args, InlineStream());
  EXPECT_TRUE(SameBits(depths, {2, 12}));
  args.over_step = true;
  Floats weights = Unwritten(6);
  args.weights = weights.data();
  LossWeights(args, InlineStream());
  EXPECT_TRUE(SameBits(depths, {1.25, 7.5}));
  EXPECT_TRUE(SameBits(weights, {1.25, 0.625, 4, 2, 2.5, 1.25}));
}

TEST(LossWeightsTest, WithoutTokensThatCountWeightsAreFinite) {
  EXPECT_TRUE(SameBits(Weights(false, {0, 30, 24}), {24, 1, 1, 1, 1, 1}));
  EXPECT_TRUE(SameBits(Weights(true, {0, 0, 24}), {60, 60, 1, 1, 60, 60}));
  EXPECT_TRUE(SameBits(Weights(false, {24, 60, 0}), {1, 1, 576, 24, 576, 24}));
}

}  // namespace
}  // namespace weft::ops

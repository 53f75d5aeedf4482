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

TEST(LossWeightsTest, WithoutTokensThatCountWeightsAreFinite) {
  EXPECT_TRUE(SameBits(Weights(false, {0, 30, 24}), {24, 1, 1, 1, 1, 1}));
  EXPECT_TRUE(SameBits(Weights(true, {0, 0, 24}), {60, 60, 1, 1, 60, 60}));
  EXPECT_TRUE(SameBits(Weights(false, {24, 60, 0}), {1, 1, 576, 24, 576, 24}));
}

}  // namespace
}  // namespace weft::ops

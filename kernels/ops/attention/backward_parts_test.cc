#include "kernels/ops/attention/backward_parts.h"

#include "gtest/gtest.h"

namespace weft::ops {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
// Of one query head of 4096 tokens.
constexpr int64_t kHead = 32 * kMiB;

AttentionShape Shape(int64_t batch, int64_t seq = 4096) {
  return {batch, seq, 16, 4, 128, 0.1f};
}

TEST(BackwardPartsTest, WhatFitsIsOnePart) {
  const BackwardParts parts = PartsOf(Shape(2), 2 * 16 * kHead);
  EXPECT_EQ(parts.part.batch, 2);
  EXPECT_EQ(parts.part.num_heads, 16);
  EXPECT_EQ(parts.part.num_kv_heads, 4);
  EXPECT_EQ(parts.sums, 1);
}

TEST(BackwardPartsTest, WholeSequencesFirst) {
  const BackwardParts parts = PartsOf(Shape(6), 5 * 16 * kHead);
  EXPECT_EQ(parts.part.batch, 3) << "the largest divisor of 6 that fits";
  EXPECT_EQ(parts.part.num_heads, 16);
  EXPECT_EQ(parts.sums, 1);
}

TEST(BackwardPartsTest, ThenKeyHeadsWithTheirQueryHeads) {
  const BackwardParts parts = PartsOf(Shape(2), 15 * kHead);
  EXPECT_EQ(parts.part.batch, 1);
  EXPECT_EQ(parts.part.num_kv_heads, 2);
  EXPECT_EQ(parts.part.num_heads, 8);
  EXPECT_EQ(parts.sums, 1);
}

TEST(BackwardPartsTest, ThenQueryHeads) {
  const BackwardParts parts = PartsOf(Shape(2), 3 * kHead);
  EXPECT_EQ(parts.part.batch, 1);
  EXPECT_EQ(parts.part.num_kv_heads, 1);
  EXPECT_EQ(parts.part.num_heads, 2);
  EXPECT_EQ(parts.sums, 2);
}

TEST(BackwardPartsTest, NoneWhenOneHeadIsTooMuch) {
  EXPECT_EQ(PartsOf(Shape(2), kHead - 1).part.batch, 0);
}

TEST(BackwardPartsTest, PartsFitAndCoverTheCall) {
  for (const int64_t seq : {128, 2048, 4096, 8192, 12288}) {
    for (const int64_t batch : {1, 3, 8}) {
      const AttentionShape s = Shape(batch, seq);
      const BackwardParts parts = PartsOf(s, 384 * kMiB);
      ASSERT_GT(parts.part.batch, 0) << seq;
      EXPECT_LE(ScoreGradBytes(parts.part), 384 * kMiB) << seq;
      EXPECT_EQ(s.batch % parts.part.batch, 0) << seq;
      EXPECT_EQ(s.num_kv_heads % parts.part.num_kv_heads, 0) << seq;
      EXPECT_EQ(parts.part.num_heads * parts.sums, 4 * parts.part.num_kv_heads)
          << seq;
    }
  }
}

}  // namespace
}  // namespace weft::ops

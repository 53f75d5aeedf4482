#include "kernels/ops/head_norm/head_norm.h"

#include <cmath>

#include "gtest/gtest.h"
#include "kernels/ops/testing/testing.h"

namespace weft::ops {
namespace {

using testing::Close;
using testing::Doubles;
using testing::Floats;
using testing::Halves;
using testing::InlineStream;
using testing::RandomFloats;
using testing::Rounded;
using testing::SameBits;
using testing::Unwritten;
using testing::Widened;

constexpr float kEps = 1e-3f;

// Two heads of three among rows of eleven, from the second column on.
constexpr int64_t kTokens = 4;
constexpr int64_t kOffset = 1;
constexpr HeadNormShape kShape = {kTokens, 2, 3, 11, 7, 2};

// Whether element `i` of qkv lies in a head.
bool InHeads(int64_t i) {
  const int64_t column = i % kShape.stride;
  return column >= kOffset && column < kOffset + kShape.heads * kShape.head_dim;
}

Doubles Reference(const Doubles& qkv, const Doubles& weight) {
  Doubles y = qkv;
  for (int64_t token = 0; token < kTokens; ++token) {
    for (int64_t head = 0; head < kShape.heads; ++head) {
      double* x =
          y.data() + token * kShape.stride + kOffset + head * kShape.head_dim;
      double squares = 0;
      for (int64_t i = 0; i < kShape.head_dim; ++i) squares += x[i] * x[i];
      const double rstd =
          1 / std::sqrt(squares / kShape.head_dim + static_cast<double>(kEps));
      for (int64_t i = 0; i < kShape.head_dim; ++i) x[i] *= rstd * weight[i];
    }
  }
  return y;
}

class HeadNormTest : public ::testing::Test {
 protected:
  HeadNormTest() {
    HeadNormForward({kShape, kEps, weight_.data(), y_.data() + kOffset,
                     x_.data(), rstd_.data()},
                    InlineStream());
  }

  // Returns the gradient of qkv and writes that of the weight.
  Floats Backward(Floats& dweight, bool accumulate) {
    Floats d = dy_;
    HeadNormBackward({kShape, weight_.data(), x_.data(), rstd_.data(),
                      d.data() + kOffset, dweight.data(), accumulate},
                     InlineStream());
    return d;
  }

  const Floats qkv_ = RandomFloats(kTokens * kShape.stride, 1, 2.0);
  const Floats weight_ = RandomFloats(kShape.head_dim, 2);
  const Floats dy_ = RandomFloats(kTokens * kShape.stride, 3);
  Floats y_ = qkv_;
  Floats x_ = Unwritten(kTokens * kShape.kept_stride);
  Floats rstd_ = Unwritten(kTokens * kShape.rstd_stride);
};

TEST_F(HeadNormTest, ForwardMatchesADoubleLoopAndTouchesNothingElse) {
  EXPECT_TRUE(Close(
      y_, Reference(testing::ToDoubles(qkv_), testing::ToDoubles(weight_)),
      1e-6, 1e-6));
  for (size_t i = 0; i < y_.size(); ++i) {
    if (InHeads(i)) continue;
    EXPECT_EQ(y_[i], qkv_[i]) << i;
  }
}

TEST_F(HeadNormTest, BackwardIsTheGradientOfInputAndWeight) {
  Floats dweight = Unwritten(kShape.head_dim);
  const Floats d = Backward(dweight, false);
  const Doubles weight = testing::ToDoubles(weight_);
  const Doubles qkv = testing::ToDoubles(qkv_);
  EXPECT_TRUE(Close(d,
                    testing::NumericGradient(
                        [&](const Doubles& x) {
                          return testing::Dot(Reference(x, weight), dy_);
                        },
                        qkv),
                    3e-6, 3e-6));
  EXPECT_TRUE(Close(dweight,
                    testing::NumericGradient(
                        [&](const Doubles& w) {
                          return testing::Dot(Reference(qkv, w), dy_);
                        },
                        weight),
                    3e-6, 3e-6));
}

TEST_F(HeadNormTest, WeightGradientAccumulatesWithOneRounding) {
  const Floats initial = RandomFloats(kShape.head_dim, 5);
  Floats expected = Unwritten(kShape.head_dim);
  Backward(expected, false);
  for (size_t i = 0; i < expected.size(); ++i) expected[i] += initial[i];
  Floats dweight = initial;
  Backward(dweight, true);
  EXPECT_TRUE(SameBits(dweight, expected));
}

TEST_F(HeadNormTest, Bf16IsTheFp32ResultRounded) {
  const Halves weight = Rounded(weight_);
  const Floats wide_weight = Widened(weight);
  Halves qkv = Rounded(qkv_);
  Floats wide_qkv = Widened(qkv);
  Halves x(x_.size());
  Floats wide_x(x_.size());
  Floats rstd = Unwritten(rstd_.size());
  Floats wide_rstd = Unwritten(rstd_.size());
  HeadNormForward({kShape, kEps, weight.data(), qkv.data() + kOffset, x.data(),
                   rstd.data()},
                  InlineStream());
  HeadNormForward({kShape, kEps, wide_weight.data(), wide_qkv.data() + kOffset,
                   wide_x.data(), wide_rstd.data()},
                  InlineStream());
  EXPECT_TRUE(SameBits(qkv, Rounded(wide_qkv)));
  EXPECT_TRUE(SameBits(x, Rounded(wide_x)));
  EXPECT_TRUE(SameBits(rstd, wide_rstd));

  Halves d = Rounded(dy_);
  Floats wide_d = Widened(d);
  Halves dweight(kShape.head_dim);
  Floats wide_dweight(kShape.head_dim);
  HeadNormBackward({kShape, weight.data(), x.data(), rstd.data(),
                    d.data() + kOffset, dweight.data()},
                   InlineStream());
  HeadNormBackward({kShape, wide_weight.data(), wide_x.data(), rstd.data(),
                    wide_d.data() + kOffset, wide_dweight.data()},
                   InlineStream());
  EXPECT_TRUE(SameBits(d, Rounded(wide_d)));
  EXPECT_TRUE(SameBits(dweight, Rounded(wide_dweight)));
}

template <typename V>
struct Arrays {
  V weight, qkv, dy;
};

template <typename V>
struct Outputs {
  V y, x, dx, dweight;
  Floats rstd;
};

// Both, on arrays that begin `offset` elements behind aligned addresses.
template <typename V>
Outputs<V> RunBoth(const HeadNormShape& s, const Arrays<V>& in,
                   int64_t offset) {
  const V weight = testing::Displaced(in.weight, offset);
  V y = testing::Displaced(in.qkv, offset);
  V d = testing::Displaced(in.dy, offset);
  V x = testing::UnwrittenOf<V>(s.tokens * s.kept_stride + offset);
  V dweight = testing::UnwrittenOf<V>(weight.size());
  Floats rstd = Unwritten(s.tokens * s.rstd_stride);
  HeadNormForward({s, kEps, weight.data() + offset, y.data() + offset,
                   x.data() + offset, rstd.data()},
                  InlineStream());
  HeadNormBackward({s, weight.data() + offset, x.data() + offset, rstd.data(),
                    d.data() + offset, dweight.data() + offset},
                   InlineStream());
  return {testing::Behind(y, offset), testing::Behind(x, offset),
          testing::Behind(d, offset), testing::Behind(dweight, offset), rstd};
}

HeadNormShape WithMoreTokens(HeadNormShape s) {
  s.tokens = testing::MoreOnGpu(s.tokens);
  return s;
}

class HeadNormAtSize : public ::testing::TestWithParam<HeadNormShape> {
 protected:
  HeadNormAtSize() {
    in_.weight = RandomFloats(s_.head_dim, 2);
    in_.qkv = RandomFloats(s_.tokens * s_.stride, 1, 2.0);
    in_.dy = RandomFloats(s_.tokens * s_.stride, 3);
  }

  const HeadNormShape s_ = WithMoreTokens(GetParam());
  Arrays<Floats> in_;
};

TEST_P(HeadNormAtSize, MatchesDoubleLoops) {
  const Outputs<Floats> got = RunBoth(s_, in_, 0);
  Doubles y = testing::ToDoubles(in_.qkv);
  Doubles dx = testing::ToDoubles(in_.dy);
  Doubles dweight(s_.head_dim);
  for (int64_t row = 0; row < s_.tokens * s_.heads; ++row) {
    const int64_t begin =
        row / s_.heads * s_.stride + row % s_.heads * s_.head_dim;
    double squares = 0;
    for (int64_t i = 0; i < s_.head_dim; ++i) {
      squares += y[begin + i] * y[begin + i];
    }
    const double rstd =
        1 / std::sqrt(squares / s_.head_dim + static_cast<double>(kEps));
    double mean = 0;
    for (int64_t i = 0; i < s_.head_dim; ++i) {
      const double xhat = y[begin + i] * rstd;
      mean += dx[begin + i] * in_.weight[i] * xhat / s_.head_dim;
      dweight[i] += dx[begin + i] * xhat;
    }
    for (int64_t i = 0; i < s_.head_dim; ++i) {
      const double xhat = y[begin + i] * rstd;
      dx[begin + i] = rstd * (dx[begin + i] * in_.weight[i] - xhat * mean);
      y[begin + i] = xhat * in_.weight[i];
    }
  }
  EXPECT_TRUE(Close(got.y, y, 2e-6, 2e-6));
  EXPECT_TRUE(Close(got.dx, dx, 3e-6, 2e-6));
  EXPECT_TRUE(Close(got.dweight, dweight, 5e-5, 2e-6));
}

TEST_P(HeadNormAtSize, BitsDependOnValuesAlone) {
  const Arrays<Halves> narrow = {Rounded(in_.weight), Rounded(in_.qkv),
                                 Rounded(in_.dy)};
  const Arrays<Floats> wide = {Widened(narrow.weight), Widened(narrow.qkv),
                               Widened(narrow.dy)};
  const Outputs<Floats> expected = RunBoth(s_, wide, 0);
  for (const int64_t offset : {0, 1}) {
    const Outputs<Floats> again = RunBoth(s_, wide, offset);
    EXPECT_TRUE(SameBits(again.y, expected.y));
    EXPECT_TRUE(SameBits(Rounded(again.x), Rounded(expected.x)));
    EXPECT_TRUE(SameBits(again.dx, expected.dx));
    EXPECT_TRUE(SameBits(again.dweight, expected.dweight));
    const Outputs<Halves> rounded = RunBoth(s_, narrow, offset);
    EXPECT_TRUE(SameBits(rounded.y, Rounded(expected.y)));
    EXPECT_TRUE(SameBits(rounded.x, Rounded(expected.x)));
    EXPECT_TRUE(SameBits(rounded.dx, Rounded(expected.dx)));
    EXPECT_TRUE(SameBits(rounded.dweight, Rounded(expected.dweight)));
  }
}

// Queries of a model, heads of an odd size, and heads wider than what a warp
// reads at once.
INSTANTIATE_TEST_SUITE_P(
    Shapes, HeadNormAtSize,
    ::testing::Values(HeadNormShape{60, 16, 128, 3072, 2560, 20},
                      HeadNormShape{200, 3, 83, 331, 251, 3},
                      HeadNormShape{50, 2, 320, 648, 640, 2}));

TEST(HeadNormEmptyTest, WithoutTokensTheWeightGradientIsZero) {
  Floats dweight = Unwritten(3);
  HeadNormBackwardArgs args;
  args.shape = kShape;
  args.shape.tokens = 0;
  args.dweight = dweight.data();
  HeadNormBackward(args, InlineStream());
  EXPECT_EQ(dweight, Floats(3));
}

}  // namespace
}  // namespace weft::ops

#include "kernels/ops/rms_norm/rms_norm.h"

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
using testing::RandomHalves;
using testing::Rounded;
using testing::SameBits;
using testing::Unwritten;
using testing::Widened;

constexpr float kEps = 1e-3f;

struct Shape {
  int64_t rows;
  int64_t hidden;
};

Doubles Reference(const Shape& s, const Doubles& x, const Doubles& weight,
                  Doubles* rstd = nullptr) {
  Doubles y(x.size());
  for (int64_t r = 0; r < s.rows; ++r) {
    double squares = 0;
    for (int64_t i = 0; i < s.hidden; ++i) {
      squares += x[r * s.hidden + i] * x[r * s.hidden + i];
    }
    const double scale =
        1 / std::sqrt(squares / s.hidden + static_cast<double>(kEps));
    if (rstd != nullptr) rstd->push_back(scale);
    for (int64_t i = 0; i < s.hidden; ++i) {
      y[r * s.hidden + i] = x[r * s.hidden + i] * scale * weight[i];
    }
  }
  return y;
}

class RmsNorm : public ::testing::TestWithParam<Shape> {
 protected:
  RmsNorm() {
    x_ = RandomFloats(s_.rows * s_.hidden, 1, 2.0);
    weight_ = RandomFloats(s_.hidden, 2);
    dy_ = RandomFloats(s_.rows * s_.hidden, 3);
    y_ = Unwritten(x_.size());
    rstd_ = Unwritten(s_.rows);
    RmsNormForward({s_.rows, s_.hidden, kEps, x_.data(), weight_.data(),
                    y_.data(), rstd_.data()},
                   InlineStream());
  }

  Floats Dgrad(const float* add) {
    Floats dx = Unwritten(x_.size());
    RmsNormDgrad({s_.rows, s_.hidden, x_.data(), weight_.data(), rstd_.data(),
                  dy_.data(), add, dx.data()},
                 InlineStream());
    return dx;
  }

  Floats Wgrad(Floats initial, bool accumulate) {
    RmsNormWgrad({s_.rows, s_.hidden, x_.data(), rstd_.data(), dy_.data(),
                  initial.data(), accumulate},
                 InlineStream());
    return initial;
  }

  const Shape s_ = GetParam();
  Floats x_, weight_, dy_, y_, rstd_;
};

TEST_P(RmsNorm, ForwardMatchesADoubleLoop) {
  Doubles rstd;
  const Doubles y =
      Reference(s_, testing::ToDoubles(x_), testing::ToDoubles(weight_), &rstd);
  EXPECT_TRUE(Close(y_, y, 1e-6, 1e-6));
  EXPECT_TRUE(Close(rstd_, rstd, 0, 1e-6));
}

TEST_P(RmsNorm, DgradIsTheGradient) {
  const Doubles weight = testing::ToDoubles(weight_);
  const Doubles expected = testing::NumericGradient(
      [&](const Doubles& x) {
        return testing::Dot(Reference(s_, x, weight), dy_);
      },
      testing::ToDoubles(x_));
  EXPECT_TRUE(Close(Dgrad(nullptr), expected, 3e-6, 3e-6));
}

TEST_P(RmsNorm, DgradAddsTheResidualGradientLast) {
  const Floats add = RandomFloats(x_.size(), 4);
  Floats expected = Dgrad(nullptr);
  for (size_t i = 0; i < expected.size(); ++i) expected[i] += add[i];
  Floats in_place = add;
  RmsNormDgrad({s_.rows, s_.hidden, x_.data(), weight_.data(), rstd_.data(),
                dy_.data(), in_place.data(), in_place.data()},
               InlineStream());
  EXPECT_TRUE(Close(in_place, testing::ToDoubles(expected), 1e-6, 1e-6));
  EXPECT_TRUE(SameBits(in_place, Dgrad(add.data())));
}

TEST_P(RmsNorm, WgradIsTheGradient) {
  const Doubles x = testing::ToDoubles(x_);
  const Doubles expected = testing::NumericGradient(
      [&](const Doubles& weight) {
        return testing::Dot(Reference(s_, x, weight), dy_);
      },
      testing::ToDoubles(weight_));
  EXPECT_TRUE(Close(Wgrad(Unwritten(s_.hidden), false), expected, 3e-6, 3e-6));
}

TEST_P(RmsNorm, WgradAccumulatesWithOneRounding) {
  const Floats initial = RandomFloats(s_.hidden, 5);
  Floats expected = Wgrad(Unwritten(s_.hidden), false);
  for (size_t i = 0; i < expected.size(); ++i) expected[i] += initial[i];
  EXPECT_TRUE(SameBits(Wgrad(initial, true), expected));
}

TEST_P(RmsNorm, ARowDoesNotDependOnTheOthers) {
  if (s_.rows == 0) return;
  const int64_t last = (s_.rows - 1) * s_.hidden;
  Floats y = Unwritten(s_.hidden);
  Floats rstd = Unwritten(1);
  RmsNormForward({1, s_.hidden, kEps, x_.data() + last, weight_.data(),
                  y.data(), rstd.data()},
                 InlineStream());
  EXPECT_TRUE(SameBits(y, Floats(y_.begin() + last, y_.end())));
}

TEST_P(RmsNorm, Bf16IsTheFp32ResultRounded) {
  const Halves x = Rounded(x_);
  const Halves weight = Rounded(weight_);
  const Halves dy = Rounded(dy_);
  const Halves add = RandomHalves(x.size(), 4);
  Halves y(x.size());
  Halves dx(x.size());
  Halves dweight(s_.hidden);
  Floats rstd = Unwritten(s_.rows);
  RmsNormForward({s_.rows, s_.hidden, kEps, x.data(), weight.data(), y.data(),
                  rstd.data()},
                 InlineStream());
  RmsNormDgrad({s_.rows, s_.hidden, x.data(), weight.data(), rstd.data(),
                dy.data(), add.data(), dx.data()},
               InlineStream());
  RmsNormWgrad(
      {s_.rows, s_.hidden, x.data(), rstd.data(), dy.data(), dweight.data()},
      InlineStream());

  x_ = Widened(x);
  weight_ = Widened(weight);
  dy_ = Widened(dy);
  RmsNormForward({s_.rows, s_.hidden, kEps, x_.data(), weight_.data(),
                  y_.data(), rstd_.data()},
                 InlineStream());
  EXPECT_TRUE(SameBits(y, Rounded(y_)));
  EXPECT_TRUE(SameBits(rstd, rstd_));
  EXPECT_TRUE(SameBits(dx, Rounded(Dgrad(Widened(add).data()))));
  EXPECT_TRUE(SameBits(dweight, Rounded(Wgrad(Unwritten(s_.hidden), false))));
}

INSTANTIATE_TEST_SUITE_P(Shapes, RmsNorm,
                         ::testing::Values(Shape{0, 8}, Shape{1, 1},
                                           Shape{3, 8}, Shape{4, 21},
                                           Shape{2, 300}));

template <typename V>
struct Inputs {
  V x, weight, dy, add;
};

template <typename V>
struct Outputs {
  V y, dx, dweight;
  Floats rstd;
};

// All three, on arrays that begin `offset` elements behind aligned addresses.
template <typename V>
Outputs<V> RunAll(const Shape& s, const Inputs<V>& in, int64_t offset) {
  const V x = testing::Displaced(in.x, offset);
  const V weight = testing::Displaced(in.weight, offset);
  const V dy = testing::Displaced(in.dy, offset);
  const V add = testing::Displaced(in.add, offset);
  V y = testing::UnwrittenOf<V>(x.size());
  V dx = testing::UnwrittenOf<V>(x.size());
  V dweight = testing::UnwrittenOf<V>(weight.size());
  Floats rstd = Unwritten(s.rows);
  RmsNormForward({s.rows, s.hidden, kEps, x.data() + offset,
                  weight.data() + offset, y.data() + offset, rstd.data()},
                 InlineStream());
  RmsNormDgrad(
      {s.rows, s.hidden, x.data() + offset, weight.data() + offset, rstd.data(),
       dy.data() + offset, add.data() + offset, dx.data() + offset},
      InlineStream());
  RmsNormWgrad({s.rows, s.hidden, x.data() + offset, rstd.data(),
                dy.data() + offset, dweight.data() + offset},
               InlineStream());
  return {testing::Behind(y, offset), testing::Behind(dx, offset),
          testing::Behind(dweight, offset), rstd};
}

class RmsNormAtSize : public ::testing::TestWithParam<Shape> {
 protected:
  RmsNormAtSize() {
    in_.x = RandomFloats(s_.rows * s_.hidden, 1, 2.0);
    in_.weight = RandomFloats(s_.hidden, 2);
    in_.dy = RandomFloats(in_.x.size(), 3);
    in_.add = RandomFloats(in_.x.size(), 4);
  }

  const Shape s_ = {testing::MoreOnGpu(GetParam().rows), GetParam().hidden};
  Inputs<Floats> in_;
};

TEST_P(RmsNormAtSize, MatchesDoubleLoops) {
  const Outputs<Floats> out = RunAll(s_, in_, 0);
  Doubles rstd;
  EXPECT_TRUE(Close(out.y,
                    Reference(s_, testing::ToDoubles(in_.x),
                              testing::ToDoubles(in_.weight), &rstd),
                    2e-6, 2e-6));
  EXPECT_TRUE(Close(out.rstd, rstd, 0, 1e-6));
  Doubles dx(in_.x.size());
  Doubles dweight(s_.hidden);
  for (int64_t r = 0; r < s_.rows; ++r) {
    const int64_t row = r * s_.hidden;
    double mean = 0;
    for (int64_t i = 0; i < s_.hidden; ++i) {
      const double xhat = in_.x[row + i] * rstd[r];
      mean += in_.dy[row + i] * static_cast<double>(in_.weight[i]) * xhat;
      dweight[i] += in_.dy[row + i] * xhat;
    }
    mean /= s_.hidden;
    for (int64_t i = 0; i < s_.hidden; ++i) {
      const double t = in_.dy[row + i] * static_cast<double>(in_.weight[i]);
      dx[row + i] = rstd[r] * (t - in_.x[row + i] * rstd[r] * mean) +
                    static_cast<double>(in_.add[row + i]);
    }
  }
  EXPECT_TRUE(Close(out.dx, dx, 3e-6, 2e-6));
  EXPECT_TRUE(Close(out.dweight, dweight, 3e-5, 2e-6));
}

TEST_P(RmsNormAtSize, BitsDependOnValuesAlone) {
  const Inputs<Halves> narrow = {Rounded(in_.x), Rounded(in_.weight),
                                 Rounded(in_.dy), Rounded(in_.add)};
  const Inputs<Floats> wide = {Widened(narrow.x), Widened(narrow.weight),
                               Widened(narrow.dy), Widened(narrow.add)};
  const Outputs<Floats> expected = RunAll(s_, wide, 0);
  for (const int64_t offset : {0, 1}) {
    const Outputs<Floats> again = RunAll(s_, wide, offset);
    EXPECT_TRUE(SameBits(again.y, expected.y));
    EXPECT_TRUE(SameBits(again.rstd, expected.rstd));
    EXPECT_TRUE(SameBits(again.dx, expected.dx));
    EXPECT_TRUE(SameBits(again.dweight, expected.dweight));
    const Outputs<Halves> rounded = RunAll(s_, narrow, offset);
    EXPECT_TRUE(SameBits(rounded.y, Rounded(expected.y)));
    EXPECT_TRUE(SameBits(rounded.rstd, expected.rstd));
    EXPECT_TRUE(SameBits(rounded.dx, Rounded(expected.dx)));
    EXPECT_TRUE(SameBits(rounded.dweight, Rounded(expected.dweight)));
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, RmsNormAtSize,
                         ::testing::Values(Shape{200, 2048}, Shape{30, 5001},
                                           Shape{600, 72}, Shape{3, 20000}));

TEST(RmsNormTest, WgradOfManyRowsKeepsItsDigits) {
  constexpr int64_t kRows = 20000;
  const Floats x = RandomFloats(kRows, 1);
  const Floats dy = RandomFloats(kRows, 2);
  const Floats rstd(kRows, 0.5f);
  double expected = 0;
  for (int64_t r = 0; r < kRows; ++r) {
    expected += static_cast<double>(dy[r]) * x[r] * 0.5;
  }
  Floats dweight = Unwritten(1);
  RmsNormWgrad({kRows, 1, x.data(), rstd.data(), dy.data(), dweight.data()},
               InlineStream());
  EXPECT_NEAR(dweight[0], expected, 2e-5);
}

}  // namespace
}  // namespace weft::ops

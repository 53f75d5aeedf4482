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

#include "kernels/ops/bias/bias.h"

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

struct Shape {
  int64_t rows;
  int64_t columns;
};

class Bias : public ::testing::TestWithParam<Shape> {
 protected:
  Floats Wgrad(Floats initial, bool accumulate) {
    BiasWgrad({s_.rows, s_.columns, dy_.data(), initial.data(), accumulate},
              InlineStream());
    return initial;
  }

  const Shape s_ = GetParam();
  const Floats dy_ = RandomFloats(s_.rows * s_.columns, 1);
};

TEST_P(Bias, IsAddedToEveryRow) {
  const Floats bias = RandomFloats(s_.columns, 2);
  Floats y = dy_;
  BiasForward({s_.rows, s_.columns, bias.data(), y.data()}, InlineStream());
  for (int64_t i = 0; i < s_.rows * s_.columns; ++i) {
    EXPECT_EQ(y[i], dy_[i] + bias[i % s_.columns]);
  }
}

TEST_P(Bias, WgradIsTheSumOverRows) {
  Doubles expected(s_.columns);
  for (int64_t i = 0; i < s_.rows * s_.columns; ++i) {
    expected[i % s_.columns] += dy_[i];
  }
  EXPECT_TRUE(Close(Wgrad(Unwritten(s_.columns), false), expected, 1e-7, 1e-7));
}

TEST_P(Bias, WgradAccumulatesWithOneRounding) {
  const Floats initial = RandomFloats(s_.columns, 3);
  Floats expected = Wgrad(Unwritten(s_.columns), false);
  for (size_t i = 0; i < expected.size(); ++i) expected[i] += initial[i];
  EXPECT_TRUE(SameBits(Wgrad(initial, true), expected));
}

TEST_P(Bias, Bf16IsTheFp32ResultRounded) {
  const int64_t count = s_.rows * s_.columns;
  const Halves bias = RandomHalves(s_.columns, 2);
  Halves y = RandomHalves(count, 3);
  const Halves dy = y;
  Floats wide_y = Widened(y);
  const Floats wide_bias = Widened(bias);
  BiasForward({s_.rows, s_.columns, bias.data(), y.data()}, InlineStream());
  BiasForward({s_.rows, s_.columns, wide_bias.data(), wide_y.data()},
              InlineStream());
  EXPECT_TRUE(SameBits(y, Rounded(wide_y)));

  const Floats wide_dy = Widened(dy);
  Floats wide_dbias(s_.columns);
  Floats mixed_dbias(s_.columns);
  Halves dbias(s_.columns);
  BiasWgrad({s_.rows, s_.columns, wide_dy.data(), wide_dbias.data()},
            InlineStream());
  BiasWgrad({s_.rows, s_.columns, dy.data(), mixed_dbias.data()},
            InlineStream());
  BiasWgrad({s_.rows, s_.columns, dy.data(), dbias.data()}, InlineStream());
  EXPECT_TRUE(SameBits(mixed_dbias, wide_dbias));
  EXPECT_TRUE(SameBits(dbias, Rounded(wide_dbias)));
}

TEST_P(Bias, BitsDoNotDependOnAlignment) {
  const Floats bias = RandomFloats(s_.columns, 2);
  const Floats displaced_bias = testing::Displaced(bias, 1);
  const Floats dy = testing::Displaced(dy_, 1);
  Floats y = dy_;
  Floats displaced_y = dy;
  BiasForward({s_.rows, s_.columns, bias.data(), y.data()}, InlineStream());
  BiasForward(
      {s_.rows, s_.columns, displaced_bias.data() + 1, displaced_y.data() + 1},
      InlineStream());
  EXPECT_TRUE(SameBits(testing::Behind(displaced_y, 1), y));

  Floats dbias = Unwritten(s_.columns + 1);
  BiasWgrad({s_.rows, s_.columns, dy.data() + 1, dbias.data() + 1},
            InlineStream());
  EXPECT_TRUE(
      SameBits(testing::Behind(dbias, 1), Wgrad(Unwritten(s_.columns), false)));
}

INSTANTIATE_TEST_SUITE_P(Shapes, Bias,
                         ::testing::Values(Shape{0, 8}, Shape{1, 1},
                                           Shape{3, 8}, Shape{4, 21},
                                           Shape{7, 300}, Shape{150, 3072},
                                           Shape{1100, 137}));

}  // namespace
}  // namespace weft::ops

#include "kernels/ops/bias/bias.h"

#include "gtest/gtest.h"
#include "kernels/ops/testing/testing.h"

namespace weft::ops {
namespace {

using testing::Close;
using testing::Doubles;
using testing::Floats;
using testing::InlineStream;
using testing::RandomFloats;
using testing::SameBits;
using testing::Unwritten;

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

INSTANTIATE_TEST_SUITE_P(Shapes, Bias,
                         ::testing::Values(Shape{0, 8}, Shape{1, 1},
                                           Shape{3, 8}, Shape{4, 21},
                                           Shape{7, 300}));

}  // namespace
}  // namespace weft::ops

#include "kernels/ops/sum_squares/sum_squares.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "gtest/gtest.h"
#include "kernels/ops/testing/testing.h"

namespace weft::ops {
namespace {

using testing::Doubles;
using testing::Floats;
using testing::Halves;
using testing::InlineStream;
using testing::RandomFloats;
using testing::RandomHalves;
using testing::Widened;

double Sum(const Floats& x, int64_t skip = 0) {
  Doubles out = {-1};
  SumSquares(
      {static_cast<int64_t>(x.size()) - skip, x.data() + skip, out.data()},
      InlineStream());
  return out[0];
}

TEST(SumSquaresTest, MatchesALongDoubleLoop) {
  for (const int64_t count : {0, 1, 7, 8, 9, 63, 5000, 3000001}) {
    const Floats x = RandomFloats(count, 1);
    long double expected = 0;
    for (const float v : x) expected += static_cast<long double>(v) * v;
    EXPECT_NEAR(Sum(x), static_cast<double>(expected),
                1e-12 * static_cast<double>(expected))
        << count;
  }
}

TEST(SumSquaresTest, Accumulates) {
  const Floats x = {1, 2, 3};
  Doubles out = {10};
  SumSquares({3, x.data(), out.data(), true}, InlineStream());
  EXPECT_EQ(out[0], 24);
  SumSquares({0, nullptr, out.data(), true}, InlineStream());
  EXPECT_EQ(out[0], 24);
  SumSquares({0, nullptr, out.data(), false}, InlineStream());
  EXPECT_EQ(out[0], 0);
}

TEST(SumSquaresTest, DoesNotDependOnAlignment) {
  for (const int64_t count : {1001, 400003}) {
    const Floats x = RandomFloats(count, 1);
    Floats moved = {0, 0, 0};
    moved.insert(moved.end(), x.begin(), x.end());
    const double a = Sum(x);
    const double b = Sum(moved, 3);
    EXPECT_EQ(std::memcmp(&a, &b, sizeof(a)), 0);
  }
}

TEST(SumSquaresTest, IsFiniteExactlyWhenEveryElementIs) {
  const float max = std::numeric_limits<float>::max();
  EXPECT_TRUE(std::isfinite(Sum(Floats(1000, max))));
  for (const float bad : {std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()}) {
    for (const int64_t at : {0, 5, 12, 200000}) {
      Floats x(at < 13 ? 13 : 200001, 1.0f);
      x[at] = bad;
      EXPECT_FALSE(std::isfinite(Sum(x)));
    }
  }
}

TEST(SumSquaresTest, OfBf16IsThatOfTheSameNumbers) {
  for (const int64_t count : {1003, 400003}) {
    const Halves x = RandomHalves(count, 1);
    const Floats wide = Widened(x);
    Doubles sums = {-1, -2};
    SumSquares({count, x.data(), &sums[0]}, InlineStream());
    SumSquares({count, wide.data(), &sums[1]}, InlineStream());
    EXPECT_EQ(sums[0], sums[1]);
  }
}

}  // namespace
}  // namespace weft::ops

#include "kernels/ops/math/vec_math.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"
#include "kernels/ops/testing/testing.h"

namespace weft::ops::simd {
namespace {

TEST(SimdTest, ForEach8CoversEveryElementOnce) {
  for (int64_t count = 0; count < 40; ++count) {
    testing::Floats seen(count + 8, 0.0f);
    ForEach8(count, [&](int64_t i, auto lanes) {
      Store(&seen[i], Load(&seen[i], lanes) + 1.0f, lanes);
    });
    for (int64_t i = 0; i < count + 8; ++i) {
      EXPECT_EQ(seen[i], i < count ? 1.0f : 0.0f) << count << " " << i;
    }
  }
}

TEST(SimdTest, PaddingIsFilledAndDropped) {
  const float x[] = {1, 2, 3};
  const F8 v = Load(x, SomeLanes{3}, 7.0f);
  EXPECT_EQ(v[2], 3.0f);
  EXPECT_EQ(v[3], 7.0f);
  EXPECT_EQ(MaxLanes(v), 7.0f);
  EXPECT_EQ(SumLanes(Keep(v, SomeLanes{3})), 6.0f);
  EXPECT_EQ(SumLanes(v), 41.0f);
}

TEST(SimdTest, DoublesKeepTheirLanes) {
  const float x[] = {1, 2, 3, 4, 5, 6, 7, 8};
  const F8 v = Load(x, AllLanes());
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(LowerToDouble(v)[i], x[i]);
    EXPECT_EQ(UpperToDouble(v)[i], x[i + 4]);
  }
}

TEST(VecMathTest, ExpIsWithinItsBoundOverTheWholeRange) {
  double worst = 0;
  for (double x = -87.29; x < 88.3; x += 0.00037) {
    const float value = static_cast<float>(x);
    const double expected = std::exp(static_cast<double>(value));
    const double error = std::abs(Exp(Splat(value))[3] / expected - 1);
    worst = std::max(worst, error);
  }
  EXPECT_LT(worst, 1.2e-7);
}

TEST(VecMathTest, ExpOfSpecialValues) {
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(Exp(Splat(0.0f))[0], 1.0f);
  EXPECT_EQ(Exp(Splat(-0.0f))[0], 1.0f);
  EXPECT_EQ(Exp(Splat(-88.0f))[0], 0.0f);
  EXPECT_EQ(Exp(Splat(-inf))[0], 0.0f);
  EXPECT_EQ(Exp(Splat(200.0f))[0], inf);
  EXPECT_EQ(Exp(Splat(inf))[0], inf);
  EXPECT_TRUE(std::isnan(Exp(Splat(std::nanf("")))[0]));
}

TEST(VecMathTest, ExpTreatsLanesAlike) {
  const F8 x = {-80, -3.5f, -1, -0.1f, 0.2f, 1, 7, 80};
  const F8 y = Exp(x);
  for (int i = 0; i < kLanes; ++i) EXPECT_EQ(y[i], Exp(Splat(x[i]))[5]);
}

TEST(VecMathTest, SigmoidIsAccurateAndSaturates) {
  for (double x = -80; x < 80; x += 0.013) {
    const float value = static_cast<float>(x);
    const double expected = 1 / (1 + std::exp(-static_cast<double>(value)));
    EXPECT_NEAR(Sigmoid(Splat(value))[0] / expected, 1, 3e-7) << x;
  }
  EXPECT_EQ(Sigmoid(Splat(-1000.0f))[0], 0.0f);
  EXPECT_EQ(Sigmoid(Splat(1000.0f))[0], 1.0f);
}

}  // namespace
}  // namespace weft::ops::simd

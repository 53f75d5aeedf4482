#include "base/bf16.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"

namespace weft {
namespace {

TEST(Bf16Test, EveryNumberSurvivesTheWayToFloatAndBack) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const Bf16 x = {static_cast<uint16_t>(bits)};
    const float value = ToFloat(x);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(ToFloat(ToBf16(value)))) << bits;
    } else {
      EXPECT_EQ(ToBf16(value).bits, bits);
    }
  }
}

TEST(Bf16Test, RoundsToTheNearestAndToEvenInTheMiddle) {
  // The steps above 1 are 1/128 wide.
  const float step = 1.0f / 128;
  EXPECT_EQ(ToFloat(ToBf16(1 + 0.49f * step)), 1.0f);
  EXPECT_EQ(ToFloat(ToBf16(1 + 0.51f * step)), 1 + step);
  EXPECT_EQ(ToFloat(ToBf16(1 + 0.5f * step)), 1.0f);
  EXPECT_EQ(ToFloat(ToBf16(1 + 1.5f * step)), 1 + 2 * step);
  EXPECT_EQ(ToFloat(ToBf16(-1 - 1.5f * step)), -1 - 2 * step);
}

TEST(Bf16Test, TheLargestNumbersRoundToInfinity) {
  const float largest = std::numeric_limits<float>::max();
  EXPECT_EQ(ToFloat(ToBf16(largest)), std::numeric_limits<float>::infinity());
  EXPECT_EQ(ToFloat(ToBf16(-largest)), -std::numeric_limits<float>::infinity());
}

// One whose only set bits of the fraction are those that fall away.
TEST(Bf16Test, NoNanBecomesInfinite) {
  const uint32_t bits = 0x7F800001;
  float nan;
  std::memcpy(&nan, &bits, sizeof(nan));
  EXPECT_TRUE(std::isnan(ToFloat(ToBf16(nan))));
}

}  // namespace
}  // namespace weft

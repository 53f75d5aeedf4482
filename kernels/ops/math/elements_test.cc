#include "kernels/ops/math/elements.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/ops/testing/testing.h"

namespace weft::ops {
namespace {

using testing::Floats;
using testing::RandomFloats;

// Values of every size, exact halves between two bf16, and special ones.
Floats Numbers(int64_t count) {
  Floats values = RandomFloats(count, 1);
  for (int64_t i = 0; i < count; i += 3) {
    values[i] = std::ldexp(1.0f + static_cast<float>(i % 512) / 256,
                           static_cast<int>(i % 200) - 100);
  }
  const float inf = std::numeric_limits<float>::infinity();
  const float special[] = {0.0f, -0.0f,  inf,
                           -inf, 1e-40f, std::numeric_limits<float>::max()};
  std::copy(std::begin(special), std::end(special), values.begin());
  return values;
}

TEST(ElementsTest, StoresRoundAndLoadsWidenLikeTheScalars) {
  for (int64_t count : {1, 7, 8, 9, 1003}) {
    const Floats values = Numbers(1003);
    std::vector<Bf16> halves(count + 1, Bf16{0x1234});
    ConvertElements(values.data(), count, halves.data());
    Floats widened(count + 1, 7.0f);
    ConvertElements(halves.data(), count, widened.data());
    for (int64_t i = 0; i < count; ++i) {
      EXPECT_EQ(halves[i].bits, ToBf16(values[i]).bits) << values[i];
      EXPECT_EQ(widened[i], ToFloat(halves[i])) << i;
    }
    EXPECT_EQ(halves[count].bits, 0x1234);
    EXPECT_EQ(widened[count], 7.0f);
  }
}

TEST(ElementsTest, ANanStaysOne) {
  const Floats nans(9, std::nanf(""));
  Bf16 halves[9];
  ConvertElements(nans.data(), 9, halves);
  for (const Bf16 half : halves) EXPECT_TRUE(std::isnan(ToFloat(half)));
}

TEST(ElementsTest, AddingRoundsTheValueAndThenTheSum) {
  const Floats values = RandomFloats(27, 2);
  const Floats before = RandomFloats(27, 3);
  std::vector<Bf16> sum(27);
  ConvertElements(before.data(), 27, sum.data());
  const std::vector<Bf16> start = sum;
  WriteOrAdd(values.data(), 27, /*accumulate=*/true, sum.data());
  for (size_t i = 0; i < sum.size(); ++i) {
    const float value = ToFloat(ToBf16(values[i]));
    EXPECT_EQ(sum[i].bits, ToBf16(ToFloat(start[i]) + value).bits) << i;
  }
  WriteOrAdd(values.data(), 27, /*accumulate=*/false, sum.data());
  for (size_t i = 0; i < sum.size(); ++i) {
    EXPECT_EQ(sum[i].bits, ToBf16(values[i]).bits) << i;
  }
}

}  // namespace
}  // namespace weft::ops

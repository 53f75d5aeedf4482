#include "kernels/ops/nonzero/nonzero.h"

#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/ops/testing/testing.h"

namespace weft::ops {
namespace {

using testing::InlineStream;

template <typename T>
uint32_t Has(const std::vector<T>& x, DType dtype) {
  uint32_t out = 0;
  HasNonZero({static_cast<int64_t>(x.size()), dtype, x.data(), &out},
             InlineStream());
  return out;
}

TEST(NonZeroTest, FindsOneWhereverItIs) {
  for (const int64_t at : {0, 1, 255, 256, 999}) {
    std::vector<float> x(1000);
    EXPECT_EQ(Has(x, DType::kF32), 0);
    x[at] = std::numeric_limits<float>::denorm_min();
    EXPECT_EQ(Has(x, DType::kF32), 1);
    std::vector<uint16_t> y(1000);
    y[at] = 1;
    EXPECT_EQ(Has(y, DType::kBf16), 1);
  }
}

TEST(NonZeroTest, ZerosOfEitherSignAreZero) {
  EXPECT_EQ(Has(std::vector<float>{0.0f, -0.0f}, DType::kF32), 0);
  EXPECT_EQ(Has(std::vector<uint16_t>{0, 0x8000}, DType::kBf16), 0);
  EXPECT_EQ(Has(std::vector<float>(), DType::kF32), 0);
}

TEST(NonZeroTest, LeavesWhatWasFound) {
  uint32_t out = 1;
  const float zero = 0;
  HasNonZero({1, DType::kF32, &zero, &out}, InlineStream());
  EXPECT_EQ(out, 1);
}

}  // namespace
}  // namespace weft::ops

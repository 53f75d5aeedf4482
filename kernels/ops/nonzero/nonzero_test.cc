#include "kernels/ops/nonzero/nonzero.h"

#include <limits>

#include "gtest/gtest.h"
#include "kernels/ops/testing/testing.h"

namespace weft::ops {
namespace {

using testing::InlineStream;
using testing::Vector;

template <typename T>
uint32_t Has(const Vector<T>& x, DType dtype) {
  Vector<uint32_t> out(1);
  HasNonZero({static_cast<int64_t>(x.size()), dtype, x.data(), out.data()},
             InlineStream());
  return out[0];
}

TEST(NonZeroTest, FindsOneWhereverItIs) {
  for (const int64_t at : {0, 1, 255, 256, 999}) {
    Vector<float> x(1000);
    EXPECT_EQ(Has(x, DType::kF32), 0);
    x[at] = std::numeric_limits<float>::denorm_min();
    EXPECT_EQ(Has(x, DType::kF32), 1);
    Vector<uint16_t> y(1000);
    y[at] = 1;
    EXPECT_EQ(Has(y, DType::kBf16), 1);
  }
}

TEST(NonZeroTest, ZerosOfEitherSignAreZero) {
  EXPECT_EQ(Has(Vector<float>{0.0f, -0.0f}, DType::kF32), 0);
  EXPECT_EQ(Has(Vector<uint16_t>{0, 0x8000}, DType::kBf16), 0);
  EXPECT_EQ(Has(Vector<float>(), DType::kF32), 0);
}

TEST(NonZeroTest, LeavesWhatWasFound) {
  Vector<uint32_t> out = {1};
  const Vector<float> zero = {0};
  HasNonZero({1, DType::kF32, zero.data(), out.data()}, InlineStream());
  EXPECT_EQ(out[0], 1);
}

// Wherever a range begins in memory, and also where others look first.
TEST(NonZeroTest, FindsTheOnlyOneOfALongRange) {
  constexpr int64_t kCount = 2000003;
  Vector<float> x(kCount, -0.0f);
  Vector<uint16_t> y(kCount, 0x8000);
  EXPECT_EQ(Has(x, DType::kF32), 0);
  EXPECT_EQ(Has(y, DType::kBf16), 0);
  for (const int64_t at : {4095, 4096, 8191, 8192, 1000000, 2000002}) {
    x[at] = 1e-30f;
    y[at] = 1;
    EXPECT_EQ(Has(x, DType::kF32), 1) << at;
    EXPECT_EQ(Has(y, DType::kBf16), 1) << at;
    for (const int64_t skip : {1, 3}) {
      Vector<uint32_t> out(2);
      HasNonZero({kCount - skip, DType::kF32, &x[skip], &out[0]},
                 InlineStream());
      HasNonZero({kCount - skip, DType::kBf16, &y[skip], &out[1]},
                 InlineStream());
      EXPECT_EQ(out, (Vector<uint32_t>{1, 1})) << at;
    }
    x[at] = 0;
    y[at] = 0;
  }
}

}  // namespace
}  // namespace weft::ops

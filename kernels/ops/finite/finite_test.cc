#include "kernels/ops/finite/finite.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"
#include "kernels/ops/testing/testing.h"

namespace weft::ops {
namespace {

using testing::InlineStream;
using testing::Vector;

template <typename T>
NonFinite Find(const Vector<T>& x, DType dtype) {
  Vector<NonFinite> found(1);
  found[0].index = -2;
  FindNonFinite({static_cast<int64_t>(x.size()), dtype, x.data(), found.data()},
                InlineStream());
  return found[0];
}

template <typename Float>
void FindsTheFirst(DType dtype) {
  using Limits = std::numeric_limits<Float>;
  for (const int64_t at : {0, 1, 7, 8, 63, 99}) {
    Vector<Float> x(100, Limits::max());
    x[3] = Limits::denorm_min();
    x[4] = -Limits::max();
    EXPECT_EQ(Find(x, dtype).index, -1);
    x[at] = -Limits::infinity();
    x[99] = at == 99 ? x[99] : Limits::quiet_NaN();
    EXPECT_EQ(Find(x, dtype).index, at);
    EXPECT_EQ(Find(x, dtype).value, -std::numeric_limits<double>::infinity());
    x[at] = Limits::quiet_NaN();
    EXPECT_EQ(Find(x, dtype).index, at);
    EXPECT_TRUE(std::isnan(Find(x, dtype).value));
  }
}

TEST(FiniteTest, FindsTheFirstOfF32) { FindsTheFirst<float>(DType::kF32); }
TEST(FiniteTest, FindsTheFirstOfF64) { FindsTheFirst<double>(DType::kF64); }

TEST(FiniteTest, FindsTheFirstOfBf16) {
  Vector<uint16_t> x(20, 0x7f7f);  // the largest number
  EXPECT_EQ(Find(x, DType::kBf16).index, -1);
  x[17] = 0x7f80;
  EXPECT_EQ(Find(x, DType::kBf16).index, 17);
  EXPECT_EQ(Find(x, DType::kBf16).value,
            std::numeric_limits<double>::infinity());
  x[5] = 0xffc0;
  EXPECT_EQ(Find(x, DType::kBf16).index, 5);
  EXPECT_TRUE(std::isnan(Find(x, DType::kBf16).value));
}

TEST(FiniteTest, RowsBehindTheCountAreNotLookedAt) {
  const Vector<int64_t> count = {2};
  const Vector<float> x = {1, 1, 1, 1, 1, NAN, NAN, NAN, NAN};
  const auto find = [&](int64_t bound) {
    Vector<NonFinite> out(1);
    FindNonFiniteArgs args;
    args.count = bound;
    args.x = x.data();
    args.out = out.data();
    args.row_count = count.data();
    args.columns = 3;
    FindNonFinite(args, InlineStream());
    return out[0].index;
  };
  EXPECT_EQ(find(9), 5);
  EXPECT_EQ(find(3), -1);
}

TEST(FiniteTest, NothingIsFinite) {
  EXPECT_EQ(Find(Vector<float>(), DType::kF32).index, -1);
}

TEST(FiniteTest, FindsTheFirstOfManyInALongRange) {
  Vector<float> x(3000001, 1.0f);
  x[3000000] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(Find(x, DType::kF32).index, 3000000);
  EXPECT_EQ(Find(x, DType::kF32).value,
            std::numeric_limits<double>::infinity());
  for (int64_t at = 270337; at < 3000000; at += 7777) x[at] = NAN;
  EXPECT_EQ(Find(x, DType::kF32).index, 270337);
  EXPECT_TRUE(std::isnan(Find(x, DType::kF32).value));
}

}  // namespace
}  // namespace weft::ops

#include "kernels/ops/weighted_sum/weighted_sum.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/ops/testing/testing.h"

namespace weft::ops {
namespace {

using testing::Doubles;

double Sum(const Doubles& x, const std::vector<double>& weights) {
  std::vector<const double*> pointers;
  for (const double& value : x) pointers.push_back(&value);
  Doubles out = {-1};
  WeightedSum({static_cast<int64_t>(x.size()), pointers.data(), weights.data(),
               out.data()},
              testing::InlineStream());
  return out[0];
}

TEST(WeightedSumTest, AddsWeightedTerms) {
  EXPECT_EQ(Sum({3, -5, 7}, {2, 0.5, 1}), 10.5);
  EXPECT_EQ(Sum({}, {}), 0);
}

// In another order the one would be lost.
TEST(WeightedSumTest, AddsInOrder) {
  EXPECT_EQ(Sum({1e30, -1e30, 1}, {1, 1, 1}), 1);
  EXPECT_EQ(Sum({1, 1e30, -1e30}, {1, 1, 1}), 0);
}

TEST(WeightedSumTest, AddsManyInOrder) {
  for (const int64_t count : {128, 129, 1000}) {
    Doubles x;
    for (int64_t i = 0; i < count; ++i) x.push_back(std::exp2(i % 60));
    double expected = 0;
    for (int64_t i = 0; i < count; ++i) expected += 1.5 * x[i];
    EXPECT_EQ(Sum(x, std::vector<double>(count, 1.5)), expected);
    // What the last two terms cancel hides all before.
    x[count - 2] = std::exp2(130);
    x[count - 1] = -x[count - 2];
    EXPECT_EQ(Sum(x, std::vector<double>(count, 1.5)), 0);
  }
}

}  // namespace
}  // namespace weft::ops

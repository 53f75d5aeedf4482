#include "kernels/ops/weighted_sum/weighted_sum.h"

#include <vector>

#include "gtest/gtest.h"
#include "kernels/ops/testing/testing.h"

namespace weft::ops {
namespace {

double Sum(const std::vector<double>& x, const std::vector<double>& weights) {
  std::vector<const double*> pointers;
  for (const double& value : x) pointers.push_back(&value);
  double out = -1;
  WeightedSum(
      {static_cast<int64_t>(x.size()), pointers.data(), weights.data(), &out},
      testing::InlineStream());
  return out;
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

}  // namespace
}  // namespace weft::ops

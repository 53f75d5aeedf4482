// What is found when two runs are not equal, and what is named.
#include "client/parity_compare.h"

#include <filesystem>
#include <limits>
#include <string>

#include "base/status_matchers.h"
#include "client/parity_fixture.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::client {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

ParityComparison Compare(const LeftBehind& left,
                         const ParityBounds& bounds = {}) {
  const auto comparison = CompareRuns(Leave("a"), Leave("b", left), bounds);
  EXPECT_OK(comparison);
  return comparison.ok() ? *comparison : ParityComparison();
}

TEST(CompareRunsTest, EqualBitsAreIdentical) {
  EXPECT_TRUE(Compare({}).is_identical());
}

TEST(CompareRunsTest, ASmallDifferenceOfTheFirstStepIsWithinBounds) {
  LeftBehind left;
  left.loss = 2.000001;
  left.gradient = {1.00001f, 2};
  left.parameter = {3, 4.1f};
  const ParityComparison near = Compare(left);
  EXPECT_FALSE(near.is_identical());
  EXPECT_TRUE(near.is_within_bounds());
  EXPECT_THAT(near.largest, HasSubstr("losses 5.0e-07, gradients 4.5e-06 (w)"));
}

TEST(CompareRunsTest, ALossOutsideItsBoundIsNamed) {
  LeftBehind left;
  left.loss = 2.5;
  const ParityComparison loss = Compare(left);
  EXPECT_EQ(loss.first, "loss of step 1 is 2 and 2.5");
  EXPECT_EQ(loss.broken,
            "loss of step 1 is 2 and 2.5: error 2.0e-01, bound 2.0e-06");
}

TEST(CompareRunsTest, AGradientOutsideItsBoundNamesTheElementMostOff) {
  LeftBehind left;
  left.gradient = {1.25, 4};
  EXPECT_THAT(Compare(left).broken,
              AllOf(StartsWith("gradient of w: error 4.8e-01, bound 3.0e-05"),
                    HasSubstr("element 1, which is 2 and 4")));
}

// The first difference is in the loss, and is allowed; the gradient's is not.
TEST(CompareRunsTest, WhatIsInsideItsBoundIsNotTheReason) {
  LeftBehind left;
  left.loss = 2.000001;
  left.gradient = {1, 4};
  const ParityComparison comparison = Compare(left);
  EXPECT_THAT(comparison.first, StartsWith("loss of step 1"));
  EXPECT_THAT(comparison.broken, StartsWith("gradient of w"));
}

TEST(CompareRunsTest, LossesOfRoutersAndTheObjectiveHaveTheBoundOfLosses) {
  LeftBehind router;
  router.router_loss = 1.5;
  EXPECT_THAT(Compare(router).broken,
              StartsWith("aux of layers.3 of step 1 is 1 and 1.5: error"));
  LeftBehind objective;
  objective.objective = 2.5;
  EXPECT_THAT(Compare(objective).broken,
              StartsWith("objective of step 1 is 2 and 2.5: error"));
}

TEST(CompareRunsTest, OtherParametersAfterEqualGradientsAreNotIdentical) {
  LeftBehind left;
  left.parameter = {3, 5};
  EXPECT_EQ(Compare(left).first, "parameter w: element 1 is 4 and 5");
}

TEST(CompareRunsTest, WhatIsNotANumberIsOutsideEveryBound) {
  LeftBehind left;
  left.gradient = {1, std::numeric_limits<float>::quiet_NaN()};
  EXPECT_THAT(Compare(left).broken,
              AllOf(HasSubstr("element 1"), HasSubstr("nan")));
}

TEST(CompareRunsTest, NarrowNumberFormatsHaveWiderBounds) {
  LeftBehind left;
  left.gradient = {1, 2.0625};  // 2.8e-2
  v1::PrecisionConfig precision;
  EXPECT_FALSE(Compare(left, BoundsOf(precision)).is_within_bounds());
  precision.set_gradients(v1::NUMBER_FORMAT_BF16);
  EXPECT_TRUE(Compare(left, BoundsOf(precision)).is_within_bounds());
  left.loss = 2.001;
  EXPECT_FALSE(Compare(left, BoundsOf(precision)).is_within_bounds());
  precision.set_compute(v1::NUMBER_FORMAT_BF16);
  EXPECT_TRUE(Compare(left, BoundsOf(precision)).is_within_bounds());
  left.gradient = {1, 4};
  EXPECT_FALSE(Compare(left, BoundsOf(precision)).is_within_bounds());
}

TEST(CompareRunsTest, WhatIsMissingIsNamed) {
  const std::string a = Leave("a");
  const std::string b = Leave("b");
  std::filesystem::remove_all(b + "/gradients");
  EXPECT_THAT(CompareRuns(a, b).status().message(), HasSubstr("gradients"));
}

}  // namespace
}  // namespace weft::client

#include "coordinator/core/step_aggregator.h"

#include <limits>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::StepMetrics Report(int64_t step, double loss = 1) {
  v1::StepMetrics metrics;
  metrics.set_step(step);
  metrics.set_loss(loss);
  return metrics;
}

TEST(StepAggregatorTest, AStepIsCompleteOnceAllRanksReportedIt) {
  StepAggregator aggregator(2);
  ASSERT_OK_AND_ASSIGN(auto first, aggregator.Add(0, Report(1)));
  EXPECT_FALSE(first.has_value());
  ASSERT_OK_AND_ASSIGN(auto second, aggregator.Add(1, Report(1)));
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(second->step(), 1);
}

TEST(StepAggregatorTest, TimesOverlapAndBytesAddUp) {
  StepAggregator aggregator(2);
  v1::StepMetrics slow = Report(1);
  slow.set_step_seconds(3);
  slow.set_ep_seconds(2);
  slow.set_ep_wire_bytes(10);
  v1::StepMetrics fast = Report(1);
  fast.set_step_seconds(1);
  fast.set_ep_seconds(1);
  fast.set_ep_wire_bytes(5);
  ASSERT_OK(aggregator.Add(0, slow));
  ASSERT_OK_AND_ASSIGN(auto all, aggregator.Add(1, fast));
  ASSERT_TRUE(all.has_value());
  EXPECT_EQ(all->step_seconds(), 3);
  EXPECT_EQ(all->ep_seconds(), 1.5);
  EXPECT_EQ(all->ep_wire_bytes(), 15);
}

TEST(StepAggregatorTest, GathersAreMeansAndImbalancesTheLargestOfALayer) {
  StepAggregator aggregator(2);
  v1::StepMetrics one = Report(1);
  one.set_gather_seconds(2);
  one.set_gather_exposed_seconds(0.5);
  one.add_layer_imbalances(1.25);
  one.add_layer_imbalances(3);
  v1::StepMetrics other = Report(1);
  other.set_gather_seconds(1);
  other.add_layer_imbalances(2);
  other.add_layer_imbalances(1);
  ASSERT_OK(aggregator.Add(0, one));
  ASSERT_OK_AND_ASSIGN(auto all, aggregator.Add(1, other));
  ASSERT_TRUE(all.has_value());
  EXPECT_EQ(all->gather_seconds(), 1.5);
  EXPECT_EQ(all->gather_exposed_seconds(), 0.25);
  EXPECT_THAT(all->layer_imbalances(), ElementsAre(2, 3));
}

// What a rank sends comes by a stream of its own: after a stall of this process
// one may be read to its end before the other.
TEST(StepAggregatorTest, ReportsOfOneRankMayAllComeFirst) {
  constexpr int kSteps = 5000;
  StepAggregator aggregator(2);
  for (int step = 1; step <= kSteps; ++step) {
    ASSERT_OK(aggregator.Add(0, Report(step)));
  }
  for (int step = 1; step <= kSteps; ++step) {
    ASSERT_OK_AND_ASSIGN(auto all, aggregator.Add(1, Report(step)));
    ASSERT_TRUE(all.has_value());
    EXPECT_EQ(all->step(), step);
  }
}

TEST(StepAggregatorTest, RefusesAStepThatIsNotTheNext) {
  StepAggregator aggregator(1);
  ASSERT_OK(aggregator.Add(0, Report(1)));
  for (int step : {1, 3}) {
    EXPECT_THAT(aggregator.Add(0, Report(step)).status(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("where step 2 was due")));
  }
}

TEST(StepAggregatorTest, NamesRanksThatDisagreeOnTheObjective) {
  StepAggregator aggregator(2);
  v1::StepMetrics report = Report(1, 0.5);
  report.set_objective(0.75);
  ASSERT_OK(aggregator.Add(0, report));
  report.set_objective(0.5);
  EXPECT_THAT(aggregator.Add(1, report).status(),
              StatusIs(absl::StatusCode::kInternal,
                       AllOf(HasSubstr("objective differs"),
                             HasSubstr("rank 1 has 0.5"))));
}

TEST(StepAggregatorTest, MemoryIsThatOfTheRankWithMost) {
  StepAggregator aggregator(3);
  for (int rank = 0; rank < 3; ++rank) {
    v1::StepMetrics report = Report(1);
    for (int64_t bytes : {rank == 1 ? 70 : 10, rank == 2 ? 30 : 20}) {
      report.add_memory()->set_bytes(bytes);
    }
    ASSERT_OK_AND_ASSIGN(const auto all, aggregator.Add(rank, report));
    if (rank < 2) continue;
    ASSERT_EQ(all->memory_size(), 2);
    EXPECT_EQ(all->memory(0).bytes(), 70);
    EXPECT_EQ(all->memory(1).bytes(), 20);
  }
}

TEST(StepAggregatorTest, NamesRanksThatDisagree) {
  StepAggregator aggregator(3);
  ASSERT_OK(aggregator.Add(0, Report(1, 0.5)));
  ASSERT_OK(aggregator.Add(1, Report(1, 0.5)));
  EXPECT_THAT(
      aggregator.Add(2, Report(1, 0.25)).status(),
      StatusIs(absl::StatusCode::kInternal,
               AllOf(HasSubstr("loss differs"), HasSubstr("rank 2 has 0.25"))));
}

TEST(StepAggregatorTest, RanksThatAllLostTheirLossAgree) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  StepAggregator aggregator(2);
  ASSERT_OK(aggregator.Add(0, Report(1, nan)));
  EXPECT_OK(aggregator.Add(1, Report(1, nan)));
}

}  // namespace
}  // namespace weft::coordinator

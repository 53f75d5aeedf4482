#include "schedule/calibrate.h"

#include <cmath>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "schedule/simulate.h"
#include "schedule/testing/jobs.h"
#include "schedule/work_time.h"

namespace weft::schedule {
namespace {

using ::testing::HasSubstr;

constexpr int kCores = 2;

Plan MustCompile(const JobSize& size, int hidden) {
  v1::TrainingJob job = SmallJob(size);
  job.mutable_model()->set_hidden_size(hidden);
  job.mutable_model()->mutable_moe()->set_expert_hidden_size(hidden / 2);
  absl::StatusOr<Plan> plan = Compile(job);
  if (!plan.ok()) std::abort();
  return *std::move(plan);
}

// Costs of a machine: arbitrary, but each class has its own.
CostTable Machine(const Plan& plan, const Sharing& sharing) {
  CostTable costs = ModelledCosts(plan, plan.train);
  for (auto& [name, cost] : costs.ops) {
    const size_t n = name.size();
    cost.fixed = 2e-6 * (1 + n % 3);
    cost.per_flop = cost.per_flop > 0 ? 1e-10 * (1 + n % 4) : 0;
    cost.per_attention_flop = 3 * cost.per_flop;
    cost.per_byte = 1e-10 * (1 + n % 5);
    cost.per_wire_byte = 3e-10;
    cost.per_peer = 1e-6;
  }
  costs.wait_seconds = 3e-6;
  costs.step_seconds = 4e-4;
  costs.sharing = sharing;
  return costs;
}

// Rank r gets more rows than the ranks before it.
std::vector<RoutedRows> UnevenRows(const Plan& plan) {
  std::vector<RoutedRows> rows;
  for (int r = 0; r < plan.world.size; ++r) {
    rows.push_back(BalancedRows(plan, plan.train));
    for (int64_t& count : rows.back().rows) {
      count = count * (2 + r) / (1 + plan.world.size);
    }
  }
  return rows;
}

Simulation RunOn(const Plan& plan, const CostTable& machine) {
  absl::StatusOr<Simulation> simulated =
      Simulate(plan, plan.train, machine, UnevenRows(plan));
  if (!simulated.ok()) std::abort();
  return *std::move(simulated);
}

// A step as that machine would have measured it.
MeasuredStep Measure(const Plan& plan, const Sharing& sharing) {
  const Simulation simulated = RunOn(plan, Machine(plan, sharing));
  const std::vector<RoutedRows> rows = UnevenRows(plan);
  MeasuredStep step;
  step.plan = &plan;
  step.step_seconds = simulated.step_seconds;
  step.median_seconds = simulated.step_seconds;
  step.cores = kCores;
  for (size_t r = 0; r < rows.size(); ++r) {
    step.ranks.push_back({ToSpans(simulated.ranks[r]), rows[r]});
    for (Span& span : step.ranks.back().spans) {
      span.begin_ns += 1000000;  // no clock begins with a step
      span.end_ns += 1000000;
    }
  }
  return step;
}

std::vector<Plan> PlansToMeasure() {
  return {MustCompile({2, 2, 1, 1}, 32), MustCompile({2, 2, 2, 2}, 64),
          MustCompile({1, 3, 2, 1}, 128), MustCompile({3, 1, 4, 2}, 64)};
}

class CalibrateTest : public ::testing::TestWithParam<Sharing> {};

TEST_P(CalibrateTest, FindsTheMachineBehindTheSteps) {
  const std::vector<Plan> plans = PlansToMeasure();
  std::vector<MeasuredStep> steps;
  for (const Plan& plan : plans) steps.push_back(Measure(plan, GetParam()));
  ASSERT_OK_AND_ASSIGN(const CostTable table, Calibrate(steps));
  EXPECT_NEAR(table.sharing.cores, GetParam().cores, 0.051);
  EXPECT_NEAR(table.sharing.crowding, GetParam().crowding, 0.026);
  EXPECT_NEAR(table.step_seconds, 4e-4, 4e-6);
  // Other jobs than it was calibrated with.
  for (const Plan& plan :
       {MustCompile({3, 4, 2, 2}, 96), MustCompile({2, 5, 4, 4}, 48)}) {
    const double truth = RunOn(plan, Machine(plan, GetParam())).step_seconds;
    EXPECT_NEAR(RunOn(plan, table).step_seconds, truth, 0.05 * truth);
  }
}

INSTANTIATE_TEST_SUITE_P(Machines, CalibrateTest,
                         ::testing::Values(Sharing{1.3, 0}, Sharing{2, 0},
                                           Sharing{0, 0.2}, Sharing{2, 0.35}));

TEST(CalibrateTest, CostsAddUpToTheMedianStepOfMostJobs) {
  const std::vector<Plan> plans = PlansToMeasure();
  std::vector<MeasuredStep> steps;
  for (const Plan& plan : plans) {
    steps.push_back(Measure(plan, {}));
    steps.back().median_seconds *= 1.5;
  }
  steps.front().median_seconds *= 2;
  ASSERT_OK_AND_ASSIGN(const CostTable table, Calibrate(steps));
  const Plan other = MustCompile({2, 5, 4, 4}, 48);
  const double truth = 1.5 * RunOn(other, Machine(other, {})).step_seconds;
  EXPECT_NEAR(RunOn(other, table).step_seconds, truth, 0.1 * truth);
}

TEST(WorkTimeTest, WaitingForOtherRanksIsNoWork) {
  const Plan plan = MustCompile({1, 1, 2, 2}, 32);
  const MeasuredStep step = Measure(plan, {});
  const CostTable machine = Machine(plan, {});
  const auto work = WorkSeconds(step, {});
  for (int r = 0; r < 2; ++r) {
    for (int id = 0; id < plan.train.ops.size(); ++id) {
      const Op& op = plan.train.ops[id];
      if (op.kind == OpKind::kHostWait) continue;
      const double seconds =
          machine.ops.at(ClassOf(plan, op))
              .Seconds(SizeOf(plan, plan.train, op, step.ranks[r].rows));
      EXPECT_NEAR(work[r][id], seconds, 3e-9) << r << " " << id;
    }
  }
}

TEST(WorkTimeTest, AnOpThatWasSlowedDownWorkedForItsShare) {
  const Plan plan = MustCompile({1, 2, 2, 2}, 32);
  const Sharing sharing = {1, 0.3};
  const MeasuredStep step = Measure(plan, sharing);
  const CostTable machine = Machine(plan, sharing);
  const auto work = WorkSeconds(step, sharing);
  for (int id = 0; id < plan.train.ops.size(); ++id) {
    const Op& op = plan.train.ops[id];
    if (op.kind == OpKind::kHostWait) continue;
    const double seconds =
        machine.ops.at(ClassOf(plan, op))
            .Seconds(SizeOf(plan, plan.train, op, step.ranks[0].rows));
    EXPECT_NEAR(work[0][id], seconds, 5e-9) << id;
  }
}

TEST(CalibrateTest, AnOpThatWasHeldUpDoesNotSpoilItsClass) {
  const Plan plan = MustCompile({2, 4, 1, 1}, 64);
  MeasuredStep step = Measure(plan, {});
  const CostTable machine = Machine(plan, {});
  int last = -1;
  for (int id = 0; id < plan.train.ops.size(); ++id) {
    if (ClassOf(plan, plan.train.ops[id]) == "optimizer") last = id;
  }
  step.ranks[0].spans[last].end_ns += 1000000000;
  step.cores = 0;
  ASSERT_OK_AND_ASSIGN(const CostTable table, Calibrate({&step, 1}));
  const OpSize size =
      SizeOf(plan, plan.train, plan.train.ops[last], step.ranks[0].rows);
  const double truth = machine.ops.at("optimizer").Seconds(size);
  EXPECT_LT(table.ops.at("optimizer").Seconds(size), 3 * truth);
}

TEST(CalibrateTest, StepsThatAreNotWholeAreRefused) {
  EXPECT_THAT(Calibrate({}), StatusIs(absl::StatusCode::kInvalidArgument,
                                      HasSubstr("no step")));
  const Plan plan = MustCompile({1, 1, 2, 2}, 32);
  MeasuredStep step = Measure(plan, {});
  step.ranks[1].spans.pop_back();
  EXPECT_THAT(Calibrate({&step, 1}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("spans")));
  step.ranks.pop_back();
  EXPECT_THAT(Calibrate({&step, 1}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("step 0 has 1 ranks")));
  step = Measure(plan, {});
  step.median_seconds = 0;
  EXPECT_THAT(
      Calibrate({&step, 1}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("the median 0")));
}

}  // namespace
}  // namespace weft::schedule

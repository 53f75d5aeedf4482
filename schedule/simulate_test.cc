#include "schedule/simulate.h"

#include <algorithm>
#include <numeric>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "schedule/arena.h"
#include "schedule/testing/jobs.h"

namespace weft::schedule {
namespace {

using ::testing::HasSubstr;

Plan MustCompile(const v1::TrainingJob& job) {
  absl::StatusOr<Plan> plan = Compile(job);
  if (!plan.ok()) std::abort();
  return *std::move(plan);
}

Plan TwoRanks() { return MustCompile(SmallJob({})); }

Op MakeOp(OpKind kind, StreamKind stream, std::vector<int> waits) {
  Op op;
  op.kind = kind;
  op.stream = stream;
  op.bucket = 0;
  op.waits = std::move(waits);
  return op;
}

// Four ops on three streams: 3, 5, 2 and 5 seconds.
class FourOps {
 public:
  FourOps() {
    v1::TrainingJob job = SmallJob({});
    job.mutable_parallel()->set_world(1);
    job.mutable_parallel()->set_ep(1);
    plan_ = Declare(job);
    program_.microbatches = 2;
    program_.ops = {MakeOp(OpKind::kGather, StreamKind::kGather, {}),
                    MakeOp(OpKind::kOptimizer, StreamKind::kCompute, {}),
                    MakeOp(OpKind::kAdd, StreamKind::kReduce, {0}),
                    MakeOp(OpKind::kOptimizer, StreamKind::kCompute, {2})};
    costs_.ops["gather"].fixed = 3;
    costs_.ops["optimizer"].fixed = 5;
    costs_.ops["add"].fixed = 2;
  }
  CostTable& costs() { return costs_; }
  Program& program() { return program_; }
  absl::StatusOr<Simulation> Run() const {
    return Simulate(plan_, program_, costs_, {BalancedRows(plan_, program_)});
  }

 private:
  Plan plan_;
  Program program_;
  CostTable costs_;
};

void ExpectTimes(const std::vector<OpTime>& times,
                 const std::vector<OpTime>& expected) {
  ASSERT_EQ(times.size(), expected.size());
  for (size_t i = 0; i < times.size(); ++i) {
    EXPECT_NEAR(times[i].begin, expected[i].begin, 1e-9) << "op " << i;
    EXPECT_NEAR(times[i].end, expected[i].end, 1e-9) << "op " << i;
  }
}

TEST(SimulateTest, AnOpBeginsWhenItsStreamIsFreeAndItsWaitsAreOver) {
  FourOps four;
  ASSERT_OK_AND_ASSIGN(const Simulation simulated, four.Run());
  ExpectTimes(simulated.ranks[0], {{0, 3}, {0, 5}, {3, 5}, {5, 10}});
  EXPECT_DOUBLE_EQ(simulated.step_seconds, 10);
  EXPECT_THAT(BusySeconds(four.program(), simulated.ranks[0]),
              ::testing::ElementsAre(10, 0, 3, 2));
}

TEST(SimulateTest, AStreamThatIdledTakesTimeToWake) {
  FourOps four;
  four.costs().wait_seconds = 0.5;
  four.costs().step_seconds = 1;
  ASSERT_OK_AND_ASSIGN(const Simulation simulated, four.Run());
  ExpectTimes(simulated.ranks[0], {{0, 3}, {0, 5}, {3.5, 5.5}, {6, 11}});
  EXPECT_DOUBLE_EQ(simulated.step_seconds, 12);
}

TEST(SimulateTest, StreamsShareTheCores) {
  FourOps four;
  four.costs().sharing.cores = 1;
  ASSERT_OK_AND_ASSIGN(const Simulation simulated, four.Run());
  ExpectTimes(simulated.ranks[0], {{0, 6}, {0, 10}, {6, 10}, {10, 15}});
  EXPECT_NEAR(simulated.step_seconds, 3 + 5 + 2 + 5, 1e-9);
}

TEST(SimulateTest, StreamsThatComputeSlowEachOtherDown) {
  FourOps four;
  four.costs().sharing.crowding = 0.5;
  ASSERT_OK_AND_ASSIGN(const Simulation simulated, four.Run());
  ExpectTimes(simulated.ranks[0],
              {{0, 4.5}, {0, 7.5}, {4.5, 7.5}, {7.5, 12.5}});
}

TEST(SharingTest, ManyStreamsShareCoresAndMeetInMemory) {
  EXPECT_EQ(Sharing().Speed(8), 1);
  EXPECT_DOUBLE_EQ((Sharing{2, 0}).Speed(2), 1);
  EXPECT_DOUBLE_EQ((Sharing{2, 0}).Speed(5), 0.4);
  EXPECT_DOUBLE_EQ((Sharing{0, 0.25}).Speed(1), 1);
  EXPECT_DOUBLE_EQ((Sharing{0, 0.25}).Speed(5), 0.5);
  EXPECT_DOUBLE_EQ((Sharing{2, 0.25}).Speed(5), 0.2);
  EXPECT_EQ((Sharing{2, 0.25}).Speed(0), 1);
}

// Both ranks exchange with each other, with no core to spare.
TEST(SimulateTest, AnExchangeNeedsNoCore) {
  const Plan plan = TwoRanks();
  CostTable costs;
  for (const Op& op : plan.train.ops) {
    if (op.kind == OpKind::kHostWait) continue;
    costs.ops[ClassOf(plan, op)].fixed = 0.001;
  }
  costs.sharing = {1, 0.5};
  const RoutedRows rows = BalancedRows(plan, plan.train);
  ASSERT_OK_AND_ASSIGN(const Simulation simulated,
                       Simulate(plan, plan.train, costs, {rows, rows}));
  int exchanges = 0;
  for (int id = 0; id < plan.train.ops.size(); ++id) {
    const Op& op = plan.train.ops[id];
    if (op.kind == OpKind::kHostWait) continue;
    const OpTime& time = simulated.ranks[0][id];
    if (IsExchange(plan, op)) {
      EXPECT_NEAR(time.end - time.begin, 0.001, 1e-9) << id;
      ++exchanges;
    } else if (op.stream == StreamKind::kCompute) {
      EXPECT_GT(time.end - time.begin, 0.0015) << id;
    }
  }
  EXPECT_GT(exchanges, 8);
}

TEST(SimulateTest, NothingIsLaunchedWhileTheHostWaits) {
  FourOps four;
  Op wait;
  wait.kind = OpKind::kHostWait;
  wait.waits = {0};
  four.program().ops.insert(four.program().ops.begin() + 1, wait);
  four.program().ops[3].waits = {0};
  four.program().ops[4].waits = {3};
  ASSERT_OK_AND_ASSIGN(const Simulation simulated, four.Run());
  ExpectTimes(simulated.ranks[0], {{0, 3}, {3, 3}, {3, 8}, {3, 5}, {8, 13}});
}

TEST(SimulateTest, EveryOpOfACompiledPlanRunsInOrder) {
  const Plan plan = MustCompile(SmallJob({3, 4, 4, 2}));
  ASSERT_OK_AND_ASSIGN(
      const Simulation simulated,
      Simulate(plan, plan.train, ModelledCosts(plan, plan.train),
               {BalancedRows(plan, plan.train)}));
  const std::vector<OpTime>& times = simulated.ranks[0];
  for (const std::vector<int>& stream : OpsByStream(plan.train)) {
    for (size_t i = 1; i < stream.size(); ++i) {
      EXPECT_GE(times[stream[i]].begin, times[stream[i - 1]].end);
    }
  }
  for (int id = 0; id < plan.train.ops.size(); ++id) {
    EXPECT_LE(times[id].end, simulated.step_seconds) << id;
    for (int wait : plan.train.ops[id].waits) {
      EXPECT_GE(times[id].begin, times[wait].end) << id;
    }
  }
}

TEST(SimulateTest, RanksThatAreAlikeTakeTheTimeOfOne) {
  const Plan plan = TwoRanks();
  const CostTable costs = ModelledCosts(plan, plan.train);
  const RoutedRows rows = BalancedRows(plan, plan.train);
  ASSERT_OK_AND_ASSIGN(const Simulation one,
                       Simulate(plan, plan.train, costs, {rows}));
  ASSERT_OK_AND_ASSIGN(const Simulation both,
                       Simulate(plan, plan.train, costs, {rows, rows}));
  ASSERT_EQ(both.ranks.size(), 2);
  ExpectTimes(both.ranks[0], one.ranks[0]);
  ExpectTimes(both.ranks[1], one.ranks[0]);
}

TEST(SimulateTest, ARankWithMoreRowsIsWaitedFor) {
  const Plan plan = TwoRanks();
  CostTable costs = ModelledCosts(plan, plan.train);
  for (auto& [name, cost] : costs.ops) cost = {};
  costs.ops["experts.forward"].per_flop = 1;
  const RoutedRows balanced = BalancedRows(plan, plan.train);
  RoutedRows few = balanced;
  RoutedRows many = balanced;
  for (int64_t& rows : few.rows) rows /= 2;
  for (int64_t& rows : many.rows) rows += rows / 2;
  ASSERT_OK_AND_ASSIGN(const Simulation even,
                       Simulate(plan, plan.train, costs, {balanced}));
  ASSERT_OK_AND_ASSIGN(const Simulation uneven,
                       Simulate(plan, plan.train, costs, {few, many}));
  EXPECT_NEAR(uneven.step_seconds, 1.5 * even.step_seconds,
              1e-6 * even.step_seconds);
  for (int id = 0; id < plan.train.ops.size(); ++id) {
    if (ClassOf(plan, plan.train.ops[id]) != "combine.forward") continue;
    EXPECT_LT(uneven.ranks[0][id].begin, uneven.ranks[1][id].begin);
    EXPECT_EQ(uneven.ranks[0][id].end, uneven.ranks[1][id].end);
  }
}

TEST(SimulateTest, WeavingHidesTheAllToAll) {
  const auto exposed = [](v1::ScheduleOrder order) {
    v1::TrainingJob job = SmallJob({4, 4, 2, 2});
    job.mutable_schedule()->set_order(order);
    const Plan plan = MustCompile(job);
    const auto simulated =
        Simulate(plan, plan.train, ModelledCosts(plan, plan.train),
                 {BalancedRows(plan, plan.train)});
    return MeasureOverlap(OpsByStream(plan.train),
                          ToSpans(simulated->ranks[0]));
  };
  const OverlapTimes plain = exposed(v1::SCHEDULE_ORDER_SEQUENTIAL);
  const OverlapTimes woven = exposed(v1::SCHEDULE_ORDER_COMBINED_1F1B);
  // But for rounding to nanoseconds.
  EXPECT_NEAR(woven.ep_ns, plain.ep_ns, 0.02 * plain.ep_ns);
  EXPECT_LT(woven.ep_exposed_ns, plain.ep_exposed_ns);
}

TEST(SimulateTest, WhatDoesNotFitIsRefused) {
  const Plan plan = TwoRanks();
  const CostTable costs = ModelledCosts(plan, plan.train);
  const RoutedRows rows = BalancedRows(plan, plan.train);
  EXPECT_THAT(Simulate(plan, plan.train, costs, {rows, rows, rows}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("rows of 3 ranks; must be of 1 or of all 2")));
  EXPECT_THAT(Simulate(plan, plan.train, costs, {RoutedRows{2, {1, 2}}}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("do not fit a plan of 2 microbatches")));
  CostTable incomplete = costs;
  incomplete.ops.erase("experts.wgrad");
  EXPECT_THAT(
      Simulate(plan, plan.train, incomplete, {rows}),
      StatusIs(absl::StatusCode::kNotFound, HasSubstr("no ops.experts.wgrad")));
}

TEST(OpSizeTest, RowsMakeExpertsAndTransfersLarger) {
  const Plan plan = TwoRanks();
  RoutedRows rows = BalancedRows(plan, plan.train);
  for (int64_t& count : rows.rows) count *= 2;
  const RoutedRows balanced = BalancedRows(plan, plan.train);
  int checked = 0;
  for (const Op& op : plan.train.ops) {
    const OpSize once = SizeOf(plan, plan.train, op, balanced);
    const OpSize twice = SizeOf(plan, plan.train, op, rows);
    const std::string name = ClassOf(plan, op);
    if (name == "experts.dgrad") {
      EXPECT_DOUBLE_EQ(twice.flops, 2 * once.flops);
      ++checked;
    } else if (name == "dispatch.forward") {
      // Half of 8 * 2 rows of 16 numbers and a probability come from the other.
      EXPECT_DOUBLE_EQ(once.wire_bytes, 8 * 2 * 17 * 4 / 2);
      EXPECT_DOUBLE_EQ(twice.wire_bytes, 2 * once.wire_bytes);
      EXPECT_EQ(once.peers, 1);
      ++checked;
    } else if (name == "pre_dispatch.forward" || name == "gather") {
      EXPECT_DOUBLE_EQ(twice.bytes, once.bytes);
      ++checked;
    }
  }
  EXPECT_GT(checked, 8);
}

TEST(OpSizeTest, AttentionGrowsWithTheSquareOfTheSequence) {
  v1::TrainingJob job = SmallJob({});
  const Plan once = MustCompile(job);
  job.mutable_data()->set_sequence_length(2 * job.data().sequence_length());
  const Plan twice = MustCompile(job);
  int checked = 0;
  for (size_t id = 0; id < once.train.ops.size(); ++id) {
    const OpSize a = SizeOf(once, once.train, once.train.ops[id],
                            BalancedRows(once, once.train));
    const OpSize b = SizeOf(twice, twice.train, twice.train.ops[id],
                            BalancedRows(twice, twice.train));
    EXPECT_DOUBLE_EQ(b.flops, 2 * a.flops) << id;
    EXPECT_DOUBLE_EQ(b.attention_flops, 4 * a.attention_flops) << id;
    const std::string name = ClassOf(once, once.train.ops[id]);
    const bool has_attention =
        name == "attention.forward" || name == "attention.dgrad";
    EXPECT_EQ(a.attention_flops > 0, has_attention) << name;
    checked += has_attention;
  }
  EXPECT_GT(checked, 3);
}

TEST(OpSizeTest, AnOptimizerWithFewerMomentsMovesFewerBytes) {
  v1::TrainingJob job = SmallJob({});
  const Plan adamw = MustCompile(job);
  job.mutable_optimizer()->set_kind(v1::OPTIMIZER_KIND_SGD);
  const Plan sgd = MustCompile(job);
  const Op& last = adamw.train.ops.back();
  ASSERT_EQ(last.kind, OpKind::kOptimizer);
  const RoutedRows rows = BalancedRows(adamw, adamw.train);
  EXPECT_DOUBLE_EQ(
      SizeOf(sgd, sgd.train, last, rows).bytes,
      SizeOf(adamw, adamw.train, last, rows).bytes * (2 + sgd.moments) / 4);
  EXPECT_LT(sgd.moments, 2);
}

TEST(MemoryCurveTest, RisesToTheLiveBytesAndEndsWithNothing) {
  const Plan plan = TwoRanks();
  ASSERT_OK_AND_ASSIGN(
      const Simulation simulated,
      Simulate(plan, plan.train, ModelledCosts(plan, plan.train),
               {BalancedRows(plan, plan.train)}));
  const RoutedRows bound = BoundedRows(plan, plan.train);
  const std::vector<MemoryPoint> curve =
      MemoryCurve(plan, plan.train, simulated.ranks[0], bound);
  EXPECT_EQ(curve.back().total(), 0);
  const std::vector<int64_t> live = LiveBytes(plan.train);
  EXPECT_LE(PeakBytes(curve), plan.train.arena_bytes);
  EXPECT_GT(PeakBytes(curve), *std::max_element(live.begin(), live.end()) / 2);
  RoutedRows few = bound;
  for (int64_t& rows : few.rows) rows /= 4;
  const std::vector<MemoryPoint> lower =
      MemoryCurve(plan, plan.train, simulated.ranks[0], few);
  ASSERT_EQ(lower.size(), curve.size());
  for (size_t i = 0; i < curve.size(); ++i) {
    EXPECT_EQ(lower[i].routed * 4, curve[i].routed);
    EXPECT_EQ(lower[i].activations, curve[i].activations);
    EXPECT_EQ(lower[i].gathered, curve[i].gathered);
    EXPECT_EQ(lower[i].gradients, curve[i].gradients);
  }
}

// One after another, what is alive is what the launch order says.
TEST(MemoryCurveTest, IsExactWhenOneOpRunsAtATime) {
  const Plan plan = TwoRanks();
  std::vector<OpTime> times;
  for (int id = 0; id < plan.train.ops.size(); ++id) {
    times.push_back({1.0 * id, id + 0.5});
  }
  const std::vector<int64_t> live = LiveBytes(plan.train);
  EXPECT_EQ(PeakBytes(MemoryCurve(plan, plan.train, times,
                                  BoundedRows(plan, plan.train))),
            *std::max_element(live.begin(), live.end()));
}

}  // namespace
}  // namespace weft::schedule

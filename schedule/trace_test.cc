#include "schedule/trace.h"

#include <set>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "schedule/testing/jobs.h"

namespace weft::schedule {
namespace {

TEST(TraceTest, HoldsEveryOpOfEveryRankAndTheMemoryBesideIt) {
  ASSERT_OK_AND_ASSIGN(const Plan plan, Compile(SmallJob({})));
  const RoutedRows rows = BalancedRows(plan, plan.train);
  ASSERT_OK_AND_ASSIGN(const Simulation simulated,
                       Simulate(plan, plan.train,
                                ModelledCosts(plan, plan.train), {rows, rows}));
  std::vector<std::vector<Span>> spans;
  std::vector<TraceRank> ranks;
  for (const auto& times : simulated.ranks) spans.push_back(ToSpans(times));
  for (int r = 0; r < 2; ++r) {
    ranks.push_back({r, spans[r], rows,
                     MemoryCurve(plan, plan.train, simulated.ranks[r], rows)});
  }
  TraceFacts facts;
  facts.is_simulated = true;
  facts.step_seconds = 0.25;
  facts.host = "a\"b";
  const nlohmann::json trace =
      nlohmann::json::parse(TraceJson(plan, plan.train, facts, ranks));
  EXPECT_EQ(trace["otherData"]["format"], "weft.step.v1");
  EXPECT_EQ(trace["otherData"]["kind"], "simulated");
  EXPECT_EQ(trace["otherData"]["host"], "a\"b");
  EXPECT_EQ(trace["otherData"]["world"], 2);
  EXPECT_EQ(trace["otherData"]["step_seconds"], 0.25);
  std::set<int> ops[2];
  int64_t peak = 0;
  int with_rows = 0;
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] == "X") {
      EXPECT_TRUE(ops[event["pid"].get<int>()]
                      .insert(event["args"]["op"].get<int>())
                      .second);
      if (event["args"].contains("rows")) {
        EXPECT_EQ(event["args"]["rows"], plan.shape.sent_rows());
        ++with_rows;
      }
    } else if (event["ph"] == "C") {
      int64_t total = 0;
      for (const auto& bytes : event["args"]) total += bytes.get<int64_t>();
      peak = std::max(peak, total);
    }
  }
  size_t launched = 0;
  for (const Op& op : plan.train.ops) launched += op.kind != OpKind::kHostWait;
  EXPECT_EQ(ops[0].size(), launched);
  EXPECT_EQ(ops[1], ops[0]);
  EXPECT_EQ(with_rows, 2 * 2 * 2);  // ranks, layers, microbatches
  EXPECT_EQ(peak, PeakBytes(ranks[0].memory));
}

}  // namespace
}  // namespace weft::schedule

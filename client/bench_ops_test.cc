#include "client/bench_ops.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "schedule/plan.h"
#include "schedule/testing/jobs.h"

namespace weft::client {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr Ceilings kMachine = {"toy", DType::kF32, "a toy", 1e12, 5e11,
                               2e11,  1e11,        1e12,    1e10};

// Two ranks, every op of which took a microsecond on rank 0 and three on rank
// 1.
class BenchOpsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(plan_,
                         schedule::Compile(schedule::SmallJob({2, 2, 2, 2})));
    step_.plan = &plan_;
    for (int64_t micros : {1, 3}) {
      schedule::MeasuredRank& rank = step_.ranks.emplace_back();
      rank.rows = schedule::BalancedRows(plan_, plan_.train);
      for (int id = 0; id < plan_.train.ops.size(); ++id) {
        rank.spans.push_back({id, 1000 * id, 1000 * (id + micros)});
      }
    }
  }

  const OpKindTime& Find(const std::vector<OpKindTime>& kinds,
                         const std::string& name) {
    for (const OpKindTime& kind : kinds) {
      if (kind.kind == name) return kind;
    }
    ADD_FAILURE() << name;
    return kinds.front();
  }

  schedule::Plan plan_;
  schedule::MeasuredStep step_;
};

TEST_F(BenchOpsTest, TimesAreMeansOverRanks) {
  const auto kinds = OpKindTimes(step_, nullptr);
  const OpKindTime& experts = Find(kinds, "experts.forward");
  EXPECT_EQ(experts.ops, 2 * 2);  // layers, microbatches
  EXPECT_DOUBLE_EQ(experts.seconds, 4 * 2e-6);
  EXPECT_TRUE(experts.is_in_flops());
  double flops = 0;
  for (const schedule::Op& op : plan_.train.ops) {
    if (schedule::ClassOf(plan_, op) != "experts.forward") continue;
    flops +=
        schedule::SizeOf(plan_, plan_.train, op, step_.ranks[0].rows).flops;
  }
  EXPECT_NEAR(experts.rate(), flops / 8e-6, 1e-6 * flops / 8e-6);
  for (size_t i = 1; i < kinds.size(); ++i) {
    EXPECT_GE(kinds[i - 1].seconds, kinds[i].seconds);
  }
}

TEST_F(BenchOpsTest, RatiosAreTheLeastTimeOverTheTime) {
  const auto kinds = OpKindTimes(step_, &kMachine);
  const OpKindTime& experts = Find(kinds, "experts.dgrad");
  const double products = experts.size.flops / kMachine.grouped_gemm;
  const double moved = experts.size.bytes / kMachine.memory;
  EXPECT_NEAR(experts.least_seconds, std::max(products, moved), 1e-15);
  EXPECT_NEAR(experts.ratio(), experts.rate() / experts.ceiling(), 1e-9);
  const OpKindTime& dispatch = Find(kinds, "dispatch.forward");
  EXPECT_FALSE(dispatch.is_in_flops());
  EXPECT_NEAR(dispatch.ceiling(), kMachine.wire, 1);
}

TEST_F(BenchOpsTest, WithoutCeilingsTheirColumnsAreLeftOut) {
  const auto kinds = OpKindTimes(step_, nullptr);
  EXPECT_THAT(OpKindTable(kinds, nullptr),
              AllOf(HasSubstr("experts.forward"), HasSubstr("TFLOP/s"),
                    Not(HasSubstr("CEILING"))));
  EXPECT_EQ(OpKindJson(kinds)[0].count("ratio"), 0);
  const auto held = OpKindTimes(step_, &kMachine);
  EXPECT_THAT(OpKindTable(held, &kMachine),
              AllOf(HasSubstr("CEILING"), HasSubstr("ceilings: a toy\n")));
  EXPECT_EQ(OpKindJson(held)[0].count("ratio"), 1);
}

TEST(CeilingsTest, AreKnownOfADeviceAndAFormat) {
  ASSERT_NE(FindCeilings("cuda:0 NVIDIA H200", DType::kBf16), nullptr);
  EXPECT_EQ(FindCeilings("cuda:0 NVIDIA H200", DType::kF32), nullptr);
  EXPECT_EQ(FindCeilings("cpu", DType::kBf16), nullptr);
}

}  // namespace
}  // namespace weft::client

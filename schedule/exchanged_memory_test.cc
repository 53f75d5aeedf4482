// Memory of what exchanges write, in a job that leaves them out.
#include <set>
#include <string>
#include <vector>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "schedule/arena.h"
#include "schedule/plan.h"
#include "schedule/testing/jobs.h"

namespace weft::schedule {
namespace {

absl::StatusOr<Plan> PlanOf(v1::Exchanges exchanges) {
  v1::TrainingJob job = SmallJob({3, 3, 2, 2});
  job.mutable_schedule()->set_order(v1::SCHEDULE_ORDER_COMBINED_1F1B);
  job.mutable_bench()->set_exchanges(exchanges);
  return Compile(job);
}

// The name of a declared value without its layer.
std::string KindOf(const Plan& plan, const Value& value) {
  const std::string& name = plan.model.values[value.decl].name;
  return name.substr(name.find('.', name.find('.') + 1) + 1);
}

bool Overlap(const Value& a, const Value& b) {
  return a.space == b.space && a.offset < b.offset + b.bytes &&
         b.offset < a.offset + a.bytes;
}

// What else lies, at some time of the step, where values of this kind do.
std::set<std::string> Neighbours(const Plan& plan, const std::string& kind) {
  std::set<std::string> neighbours;
  for (const Value& value : plan.train.values) {
    if (value.kind != ValueKind::kActivation || KindOf(plan, value) != kind) {
      continue;
    }
    for (const Value& other : plan.train.values) {
      if (!Overlap(value, other)) continue;
      neighbours.insert(other.kind == ValueKind::kActivation
                            ? KindOf(plan, other)
                            : "bucket");
    }
  }
  return neighbours;
}

constexpr const char* kExchanged[] = {"rows",           "row_prob",
                                      "combine_back",   "expert_out.grad",
                                      "send_rows.grad", "send_prob.grad"};

TEST(ExchangedMemoryTest, WhatExchangesWriteLiesWhereNothingElseDoes) {
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanOf(v1::EXCHANGES_LEFT_OUT));
  for (const char* kind : kExchanged) {
    EXPECT_EQ(Neighbours(plan, kind), std::set<std::string>{kind});
  }
}

TEST(ExchangedMemoryTest, LayersAndMicrobatchesShareIt) {
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanOf(v1::EXCHANGES_LEFT_OUT));
  std::set<int64_t> offsets;
  int instances = 0;
  for (const Value& value : plan.train.values) {
    if (value.kind != ValueKind::kActivation ||
        KindOf(plan, value) != "combine_back") {
      continue;
    }
    offsets.insert(value.offset);
    ++instances;
  }
  EXPECT_EQ(instances, 3 * 3);
  EXPECT_LT(offsets.size(), instances);
}

// What the test above it is worth.
TEST(ExchangedMemoryTest, InOtherJobsItIsReused) {
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanOf(v1::EXCHANGES_NORMAL));
  size_t others = 0;
  for (const char* kind : kExchanged) {
    others += Neighbours(plan, kind).size() - 1;
  }
  EXPECT_GT(others, 0);
  ASSERT_OK_AND_ASSIGN(const Plan left_out, PlanOf(v1::EXCHANGES_LEFT_OUT));
  EXPECT_GT(left_out.train.arena_bytes, plan.train.arena_bytes);
}

}  // namespace
}  // namespace weft::schedule

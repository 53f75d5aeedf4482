#include "schedule/residency.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "gtest/gtest.h"
#include "schedule/plan.h"
#include "schedule/testing/jobs.h"

namespace weft::schedule {
namespace {

constexpr fsdp::Strategy kZero3 = fsdp::Strategy::kOptimGradsParams;

struct Case {
  Plan plan;
  std::vector<NodePhase> order;
};

// The same budget in forward and backward.
ResidencyBudget Both(int64_t bytes) { return {bytes, bytes}; }

Case MakeCase(int layers, int world, int ep) {
  Case c{Declare(SmallJob({layers, /*microbatches=*/2, world, ep})), {}};
  c.order = Combined1F1BOrder(c.plan.model, 2, /*delay_wgrad=*/true);
  return c;
}

int64_t Bytes(const Plan& plan, int bucket) {
  return plan.units.buckets[bucket].elements * 4;
}

bool IsRoot(const Case& c, const Stay& stay) {
  return c.plan.units.units[c.plan.units.buckets[stay.bucket].unit].root;
}

// Gathered bytes that no phase at that position reads, largest over the
// positions of forward phases, and over the others.
std::pair<int64_t, int64_t> LargestIdle(const Case& c,
                                        const std::vector<Stay>& stays) {
  std::pair<int64_t, int64_t> largest;
  for (int position = 0; position < c.order.size(); ++position) {
    int64_t idle = 0;
    for (const Stay& stay : stays) {
      if (IsRoot(c, stay)) continue;
      if (position < stay.gather || position > stay.release) continue;
      bool read = false;
      const NodePhase& at = c.order[position];
      for (int param :
           c.plan.model.node(at.layer, at.node).Find(at.phase)->params_read) {
        read |= c.plan.units.bucket_of_param[param] == stay.bucket;
      }
      if (!read) idle += Bytes(c.plan, stay.bucket);
    }
    const bool forward = c.order[position].phase == model::Phase::kForward;
    int64_t& of = forward ? largest.first : largest.second;
    of = std::max(of, idle);
  }
  return largest;
}

TEST(PlanStaysTest, ResidentBucketsHaveNoStays) {
  const Case c = MakeCase(2, /*world=*/1, /*ep=*/1);
  EXPECT_TRUE(
      PlanStays(c.order, c.plan.model, c.plan.units, kZero3, Both(1)).empty());
  const Case d = MakeCase(2, /*world=*/2, /*ep=*/1);
  EXPECT_TRUE(PlanStays(d.order, d.plan.model, d.plan.units,
                        fsdp::Strategy::kNoShard, Both(1))
                  .empty());
}

TEST(PlanStaysTest, ExpertBucketOfAGroupOfOneStays) {
  const Case c = MakeCase(2, /*world=*/2, /*ep=*/2);
  for (const Stay& stay :
       PlanStays(c.order, c.plan.model, c.plan.units, kZero3, Both(1))) {
    EXPECT_EQ(c.plan.units.buckets[stay.bucket].axis, fsdp::Axis::kDp);
  }
}

TEST(PlanStaysTest, RootStaysForTheStep) {
  const Case c = MakeCase(2, /*world=*/4, /*ep=*/2);
  int root = 0;
  for (const Stay& stay :
       PlanStays(c.order, c.plan.model, c.plan.units, kZero3, Both(1))) {
    if (!IsRoot(c, stay)) continue;
    ++root;
    EXPECT_EQ(stay.gather, 0);
  }
  EXPECT_EQ(root, 1);
}

TEST(PlanStaysTest, TheRootIsGatheredAheadOfWhatIsReadAfterIt) {
  const Case c = MakeCase(2, /*world=*/4, /*ep=*/2);
  const auto stays = PlanStays(c.order, c.plan.model, c.plan.units, kZero3,
                               Both(int64_t{1} << 40));
  ASSERT_FALSE(stays.empty());
  const int unit = c.plan.units.buckets[stays[0].bucket].unit;
  EXPECT_TRUE(c.plan.units.units[unit].root);
}

TEST(PlanStaysTest, ShardedWeightsAreGatheredOnceAStepUnlessParamsAreSharded) {
  const Case c = MakeCase(3, /*world=*/4, /*ep=*/2);
  for (const auto strategy :
       {fsdp::Strategy::kOptim, fsdp::Strategy::kOptimGrads}) {
    const auto stays =
        PlanStays(c.order, c.plan.model, c.plan.units, strategy, Both(1));
    EXPECT_EQ(stays.size(), c.plan.units.buckets.size());
    std::set<int> buckets;
    for (const Stay& stay : stays) {
      EXPECT_EQ(stay.gather, 0);
      EXPECT_TRUE(buckets.insert(stay.bucket).second) << stay.bucket;
    }
  }
}

TEST(PlanStaysTest, PrefetchNeverExceedsTheBudget) {
  const Case c = MakeCase(6, /*world=*/4, /*ep=*/2);
  const int64_t unit =
      TwoLargestUnits(c.plan.units, &fsdp::Bucket::weight_bytes) / 2;
  size_t stays_with_small_budget = 0;
  for (int64_t budget : {int64_t{1}, unit / 2, unit, 2 * unit, 100 * unit}) {
    const auto stays =
        PlanStays(c.order, c.plan.model, c.plan.units, kZero3, Both(budget));
    EXPECT_LE(LargestIdle(c, stays).first, budget);
    EXPECT_LE(LargestIdle(c, stays).second, budget);
    if (budget == 1) stays_with_small_budget = stays.size();
    if (budget == 100 * unit) {
      EXPECT_LT(stays.size(), stays_with_small_budget);
    }
  }
}

TEST(PlanStaysTest, ForwardAndBackwardHaveBudgetsOfTheirOwn) {
  for (bool combined : {true, false}) {
    Case c = MakeCase(6, /*world=*/4, /*ep=*/2);
    if (!combined) {
      c.order = SequentialOrder(c.plan.model, 2, /*delay_wgrad=*/true);
    }
    const int64_t unit =
        TwoLargestUnits(c.plan.units, &fsdp::Bucket::weight_bytes) / 2;
    const auto idle = [&](int64_t forward, int64_t backward) {
      return LargestIdle(c, PlanStays(c.order, c.plan.model, c.plan.units,
                                      kZero3, {forward, backward}));
    };
    const auto [forward, small_backward] = idle(2 * unit, 1);
    EXPECT_GT(forward, 0);
    EXPECT_LE(forward, 2 * unit);
    EXPECT_LE(small_backward, 1);
    const auto [small_forward, backward] = idle(1, 2 * unit);
    EXPECT_LE(small_forward, 1);
    EXPECT_GT(backward, 0);
    EXPECT_LE(backward, 2 * unit);
  }
}

TEST(PlanStaysTest, StaysThatOverlapHaveSlotsOfTheirOwn) {
  const Case c = MakeCase(6, /*world=*/4, /*ep=*/2);
  size_t stays_with_one = 0;
  for (int slots : {1, 2, 3, 5, 20}) {
    ResidencyBudget budget =
        Both(TwoLargestUnits(c.plan.units, &fsdp::Bucket::weight_bytes));
    budget.slots = slots;
    const auto stays =
        PlanStays(c.order, c.plan.model, c.plan.units, kZero3, budget);
    std::vector<int> taken_until(slots, -1);
    for (const Stay& stay : stays) {
      if (IsRoot(c, stay)) {
        EXPECT_EQ(stay.slot, -1);
        continue;
      }
      ASSERT_GE(stay.slot, 0);
      ASSERT_LT(stay.slot, slots);
      EXPECT_GT(stay.gather, taken_until[stay.slot]);
      taken_until[stay.slot] = stay.release;
    }
    EXPECT_LE(LargestIdle(c, stays).first, budget.forward_bytes);
    if (slots == 1) stays_with_one = stays.size();
    if (slots == 20) {
      EXPECT_LT(stays.size(), stays_with_one);
    }
  }
}

TEST(PlanStaysTest, WithoutSlotsBucketsLieAnywhere) {
  const Case c = MakeCase(2, /*world=*/4, /*ep=*/2);
  for (const Stay& stay :
       PlanStays(c.order, c.plan.model, c.plan.units, kZero3, Both(1))) {
    EXPECT_EQ(stay.slot, -1);
  }
}

TEST(PlanStaysTest, ABudgetOfAUnitGathersAheadOfTheFirstReader) {
  const Case c = MakeCase(4, /*world=*/4, /*ep=*/2);
  const auto stays = PlanStays(
      c.order, c.plan.model, c.plan.units, kZero3,
      Both(TwoLargestUnits(c.plan.units, &fsdp::Bucket::weight_bytes)));
  int ahead = 0;
  for (const Stay& stay : stays) ahead += stay.gather < stay.first_reader;
  EXPECT_GT(ahead, static_cast<int>(stays.size()) / 2);
}

TEST(PlanStaysTest, GathersAreLaunchedInTheOrderOfTheirReaders) {
  const Case c = MakeCase(5, /*world=*/4, /*ep=*/2);
  const auto stays = PlanStays(
      c.order, c.plan.model, c.plan.units, kZero3,
      Both(TwoLargestUnits(c.plan.units, &fsdp::Bucket::weight_bytes)));
  int gather = 0;
  int reader = 0;
  for (const Stay& stay : stays) {
    if (IsRoot(c, stay)) continue;
    EXPECT_LE(gather, stay.gather);
    EXPECT_LE(reader, stay.first_reader);
    EXPECT_LE(stay.gather, stay.first_reader);
    EXPECT_LE(stay.first_reader, stay.release);
    gather = stay.gather;
    reader = stay.first_reader;
  }
}

}  // namespace
}  // namespace weft::schedule

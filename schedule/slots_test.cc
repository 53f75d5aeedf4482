// Gathered buckets in fixed slots.
#include <set>
#include <string>
#include <utility>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "schedule/plan.h"
#include "schedule/testing/jobs.h"
#include "schedule/verifier.h"
#include "schedule/verifier_proofs.h"

namespace weft::schedule {
namespace {

using ::testing::HasSubstr;

v1::TrainingJob SlotsJob(int slots) {
  v1::TrainingJob job = SmallJob({3, 3, 4, 2});
  job.mutable_schedule()->set_delay_wgrad(true);
  job.mutable_fsdp()->clear_prefetch_bytes();
  job.mutable_fsdp()->set_buffer_slots(slots);
  job.mutable_eval()->set_batches(1);
  return job;
}

bool IsGatheredOfLayer(const Plan& plan, const Value& value) {
  return value.kind == ValueKind::kGathered &&
         !plan.units.units[plan.units.buckets[value.bucket].unit].root;
}

int64_t LargestBucketOfALayer(const Plan& plan) {
  int64_t largest = 0;
  for (const fsdp::Bucket& bucket : plan.units.buckets) {
    if (plan.units.units[bucket.unit].root) continue;
    largest = std::max(largest, bucket.elements * 4);
  }
  return largest;
}

// Bytes of the arena's end that no slot takes.
int64_t Rest(const Plan& plan, const Program& program) {
  return program.arena_bytes -
         program.buffer_slots * LargestBucketOfALayer(plan);
}

TEST(SlotsTest, GatheredBucketsTakeExactlyTheSlots) {
  for (int slots : {1, 2, 3, 8}) {
    ASSERT_OK_AND_ASSIGN(const Plan plan, Compile(SlotsJob(slots)));
    const int64_t bytes = LargestBucketOfALayer(plan);
    for (const Program* program : {&plan.train, &*plan.eval}) {
      EXPECT_EQ(program->buffer_slots, slots);
      std::set<int64_t> used;
      for (const Value& value : program->values) {
        if (IsGatheredOfLayer(plan, value)) {
          EXPECT_EQ(value.offset % bytes, 0);
          EXPECT_LT(value.offset, slots * bytes);
          used.insert(value.offset / bytes);
        } else if (value.space == model::Space::kDevice) {
          EXPECT_GE(value.offset, slots * bytes);
        }
      }
      if (slots <= 2) {
        EXPECT_EQ(used.size(), slots);
      }
      EXPECT_GT(Rest(plan, *program), 0);
    }
  }
}

// What is not in slots needs the same memory however many there are, but for
// how long the order of gathers lets it live.
TEST(SlotsTest, ASlotCostsItsBytes) {
  ASSERT_OK_AND_ASSIGN(const Plan many, Compile(SlotsJob(20)));
  ASSERT_OK_AND_ASSIGN(const Plan more, Compile(SlotsJob(25)));
  EXPECT_EQ(more.train.arena_bytes - many.train.arena_bytes,
            5 * LargestBucketOfALayer(many));
}

TEST(SlotsTest, FewerSlotsGatherMoreOften) {
  const auto gathers = [](int slots) {
    const absl::StatusOr<Plan> plan = Compile(SlotsJob(slots));
    int count = 0;
    for (const Op& op : plan->train.ops) {
      count += op.kind == OpKind::kGather;
    }
    return count;
  };
  EXPECT_GT(gathers(1), gathers(4));
}

TEST(SlotsTest, ThePlanSaysSo) {
  ASSERT_OK_AND_ASSIGN(const Plan plan, Compile(SlotsJob(2)));
  EXPECT_THAT(ToText(plan, plan.train), HasSubstr(", 2 slots of "));
  ASSERT_OK_AND_ASSIGN(const Plan none, Compile(SlotsJob(0)));
  EXPECT_THAT(ToText(none, none.train), Not(HasSubstr("slots")));
}

TEST(SlotsTest, OnTheWireAndBackIsTheSamePlan) {
  const v1::TrainingJob job = SlotsJob(2);
  ASSERT_OK_AND_ASSIGN(const Plan plan, Compile(job));
  ASSERT_OK_AND_ASSIGN(const Program copy,
                       FromProto(ToProto(plan, plan.train), Declare(job)));
  EXPECT_EQ(ToText(plan, copy), ToText(plan, plan.train));
  plan::v1::Program other = ToProto(plan, plan.train);
  other.set_buffer_slots(3);
  EXPECT_THAT(FromProto(other, Declare(job)).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("buffer_slots=3, the job has 2")));
}

TEST(SlotsTest, TheLeastNumberIsWhatOneOpReads) {
  v1::TrainingJob job = SlotsJob(1);
  EXPECT_EQ(LeastBufferSlots(Declare(job)), 1);
  v1::ParameterGroup& group = *job.mutable_optimizer()->add_groups();
  group.add_parameters("layers.1.norm1");
  group.set_frozen(true);
  EXPECT_EQ(LeastBufferSlots(Declare(job)), 2);
  job.mutable_fsdp()->set_buffer_slots(2);
  EXPECT_OK(Compile(job));
  job.mutable_parallel()->set_world(1);
  job.mutable_parallel()->set_ep(1);
  job.mutable_batch()->set_global_batch(3);
  EXPECT_EQ(LeastBufferSlots(Declare(job)), 0);
  EXPECT_OK(Compile(job));
}

class BrokenSlotsTest : public ::testing::Test {
 protected:
  BrokenSlotsTest() : plan_(*Compile(SlotsJob(2))) {}

  Value& FirstInSlot() {
    for (Value& value : plan_.train.values) {
      if (IsGatheredOfLayer(plan_, value)) return value;
    }
    ADD_FAILURE() << "no such value";
    return plan_.train.values[0];
  }

  void ExpectBroken(const std::string& detail) {
    EXPECT_THAT(VerifyProgram(plan_.train, plan_.model, plan_.units),
                StatusIs(absl::StatusCode::kInternal, HasSubstr(detail)));
  }

  Plan plan_;
};

TEST_F(BrokenSlotsTest, RejectsABucketBetweenSlots) {
  // Memory taken too early would show first.
  FirstInSlot().offset += 64;
  const Subject subject{plan_.train, plan_.model, plan_.units, {}};
  EXPECT_THAT(ProveSlots(subject),
              StatusIs(absl::StatusCode::kInternal,
                       HasSubstr("does not begin a slot")));
}

TEST_F(BrokenSlotsTest, RejectsABucketOutsideTheSlots) {
  FirstInSlot().offset =
      (plan_.train.arena_bytes / LargestBucketOfALayer(plan_) + 1) *
      LargestBucketOfALayer(plan_);
  plan_.train.arena_bytes *= 3;
  ExpectBroken("does not begin a slot");
}

TEST_F(BrokenSlotsTest, RejectsAnActivationInASlot) {
  // One whose bytes are free when it is used: only where they lie is wrong.
  plan_.train.buffer_slots += 1;
  ExpectBroken("lies in a slot");
}

TEST_F(BrokenSlotsTest, RejectsASlotThatIsTakenWhileItsBucketIsRead) {
  const int64_t bytes = LargestBucketOfALayer(plan_);
  for (Value& value : plan_.train.values) {
    if (IsGatheredOfLayer(plan_, value)) value.offset = value.offset % bytes;
  }
  ExpectBroken("plan is broken: values");
}

TEST_F(BrokenSlotsTest, RejectsSlotsOfAnotherStrategyAndNegativeOnes) {
  plan_.train.buffer_slots = -1;
  ExpectBroken("slots: -1 slots");
  v1::TrainingJob job = SlotsJob(0);
  job.mutable_fsdp()->set_strategy(v1::SHARDING_STRATEGY_OPTIM);
  plan_ = *Compile(job);
  plan_.train.buffer_slots = 2;
  ExpectBroken("whose weights stay for the step");
}

}  // namespace
}  // namespace weft::schedule

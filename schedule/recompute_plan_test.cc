// Plans of jobs that compute activations again: smaller, and nothing else
// changes.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "schedule/arena.h"
#include "schedule/flops.h"
#include "schedule/order.h"
#include "schedule/plan.h"
#include "schedule/testing/jobs.h"

namespace weft::schedule {
namespace {

using ::testing::ElementsAre;

// With every part, three times.
v1::TrainingJob EveryPart(v1::ScheduleOrder order, bool delay) {
  v1::TrainingJob job = SmallJob({0, 2, 2, 2});
  v1::ModelConfig& model = *job.mutable_model();
  model.set_pattern("[+E][*E][*-][+E][*E][*-][+E][*E][*-]");
  model.mutable_moe()->set_shared_expert_hidden_size(8);
  v1::MlaConfig& mla = *model.mutable_mla();
  mla.set_q_lora_rank(4);
  mla.set_kv_lora_rank(4);
  mla.set_qk_nope_head_dim(4);
  mla.set_qk_rope_head_dim(2);
  mla.set_v_head_dim(4);
  job.mutable_data()->set_sequence_length(64);
  job.mutable_schedule()->set_order(order);
  job.mutable_schedule()->set_delay_wgrad(delay);
  return job;
}

int64_t PeakBytes(const Program& program) {
  const std::vector<int64_t> live = LiveBytes(program);
  return *std::max_element(live.begin(), live.end());
}

std::map<OpKind, int> OpKinds(const Program& program) {
  std::map<OpKind, int> kinds;
  for (const Op& op : program.ops) {
    const bool again =
        op.kind == OpKind::kNode && op.phase == model::Phase::kRecompute;
    if (!again) ++kinds[op.kind];
  }
  return kinds;
}

// Calls `fn(job)` for both orders, weight gradients at once and delayed.
template <typename Fn>
void ForEachOrder(Fn fn) {
  for (auto order :
       {v1::SCHEDULE_ORDER_SEQUENTIAL, v1::SCHEDULE_ORDER_COMBINED_1F1B}) {
    for (bool delay : {false, true}) {
      SCOPED_TRACE(absl::StrCat(v1::ScheduleOrder_Name(order), " ", delay));
      fn(EveryPart(order, delay));
    }
  }
}

TEST(RecomputePlanTest, EachPartAndAllOfALayerMakeThePeakSmaller) {
  ForEachOrder([](v1::TrainingJob job) {
    ASSERT_OK_AND_ASSIGN(const Plan kept, Compile(job));
    v1::RecomputeConfig& recompute =
        *job.mutable_schedule()->mutable_recompute();
    std::vector<int> parts;
    for (int part = v1::RECOMPUTE_PART_NORM; v1::RecomputePart_IsValid(part);
         ++part) {
      parts.push_back(part);
      recompute.clear_parts();
      recompute.add_parts(static_cast<v1::RecomputePart>(part));
      ASSERT_OK_AND_ASSIGN(const Plan plan, Compile(job));
      const auto name =
          v1::RecomputePart_Name(static_cast<v1::RecomputePart>(part));
      EXPECT_LT(PeakBytes(plan.train), PeakBytes(kept.train)) << name;
    }
    recompute.clear_parts();
    for (int part : parts) {
      recompute.add_parts(static_cast<v1::RecomputePart>(part));
    }
    ASSERT_OK_AND_ASSIGN(const Plan plan, Compile(job));
    EXPECT_LT(plan.train.arena_bytes, kept.train.arena_bytes);
    recompute.clear_parts();
    recompute.set_full(true);
    ASSERT_OK_AND_ASSIGN(const Plan full, Compile(job));
    EXPECT_LT(PeakBytes(full.train), PeakBytes(plan.train));
    EXPECT_LT(full.train.arena_bytes, plan.train.arena_bytes);
  });
}

TEST(RecomputePlanTest, NothingButTheRecomputeIsAdded) {
  ForEachOrder([](v1::TrainingJob job) {
    // Gathered once a step: how often does not depend on the readers.
    job.mutable_fsdp()->set_strategy(v1::SHARDING_STRATEGY_OPTIM_GRADS);
    job.mutable_eval()->set_batches(1);
    job.mutable_data()->set_validation_fraction(0.1);
    ASSERT_OK_AND_ASSIGN(const Plan kept, Compile(job));
    job.mutable_schedule()->mutable_recompute()->set_full(true);
    ASSERT_OK_AND_ASSIGN(const Plan full, Compile(job));
    EXPECT_EQ(OpKinds(full.train), OpKinds(kept.train));
    EXPECT_GT(full.train.ops.size(), kept.train.ops.size());
    EXPECT_EQ(full.eval->ops.size(), kept.eval->ops.size());
    EXPECT_EQ(TrainingFlopsOf(full.shape).total(),
              TrainingFlopsOf(kept.shape).total());
    ASSERT_OK_AND_ASSIGN(const Program read,
                         FromProto(ToProto(full, full.train), full));
    EXPECT_EQ(ToText(full, read), ToText(full, full.train));
  });
}

// Where an exchange is made again, another microbatch's forward hides it.
TEST(RecomputeOrderTest, TheDispatchMadeAgainStandsBeforeTheOthersForward) {
  v1::TrainingJob job = SmallJob({/*layers=*/1, /*microbatches=*/2});
  job.mutable_schedule()->mutable_recompute()->set_full(true);
  const Plan plan = Declare(job);
  std::vector<std::string> names;
  for (const NodePhase& at :
       Combined1F1BOrder(plan.model, 2, /*delay_wgrad=*/true)) {
    if (at.layer != 1) continue;
    names.push_back(absl::StrCat(Name(at.phase), at.microbatch, " ",
                                 Name(plan.model.node(1, at.node).kind)));
  }
  names.erase(names.begin(), names.begin() + 6);  // a forward alone
  names.resize(12);
  EXPECT_THAT(
      names,
      ElementsAre("dgrad0 combine", "recompute0 attention",
                  "recompute0 pre_dispatch", "recompute0 dispatch",
                  "forward1 attention", "forward1 pre_dispatch",
                  "recompute0 experts", "dgrad0 experts", "forward1 counts",
                  "forward1 dispatch", "wgrad0 experts", "dgrad0 dispatch"));
}

TEST(RecomputeOrderTest, APartStandsBeforeItsFirstReader) {
  v1::TrainingJob job = SmallJob({/*layers=*/1, /*microbatches=*/1});
  job.mutable_schedule()->mutable_recompute()->add_parts(
      v1::RECOMPUTE_PART_MOE_ACTIVATION);
  job.mutable_schedule()->mutable_recompute()->add_parts(
      v1::RECOMPUTE_PART_ATTENTION_CORE);
  const Plan plan = Declare(job);
  std::vector<std::string> names;
  for (const NodePhase& at :
       SequentialOrder(plan.model, 1, /*delay_wgrad=*/true)) {
    if (at.layer != 1 || at.phase == model::Phase::kForward) continue;
    names.push_back(absl::StrCat(Name(at.phase), " ",
                                 Name(plan.model.node(1, at.node).kind)));
  }
  EXPECT_THAT(
      names,
      ElementsAre("dgrad combine", "dgrad experts", "dgrad dispatch",
                  "recompute experts", "wgrad experts", "dgrad pre_dispatch",
                  "recompute attention", "dgrad attention", "wgrad attention"));
}

}  // namespace
}  // namespace weft::schedule

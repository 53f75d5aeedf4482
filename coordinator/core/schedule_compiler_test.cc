#include "coordinator/core/schedule_compiler.h"

#include <string>

#include "base/status_matchers.h"
#include "coordinator/core/admission.h"
#include "coordinator/core/prepare.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "schedule/rules/test_jobs.h"

namespace weft::coordinator {
namespace {

using schedule::MakeJobWith;
using schedule::MakeLegalJob;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(ScheduleCompilerTest, CompilesALegalJob) {
  const v1::TrainingJob job = MakeJobWith("eval { batches: 1 }");
  ASSERT_OK_AND_ASSIGN(AdmittedJob admitted, Admit(job, ScheduleCompiler()));
  const CompiledPlan& plan = *admitted.plan;
  EXPECT_GT(plan.train.ops_size(), 0);
  EXPECT_EQ(plan.train.ops_size(), plan.summary.ops());
  EXPECT_TRUE(plan.eval.has_value());
  EXPECT_NE(plan.units.hash(), 0);
  EXPECT_EQ(plan.summary.microbatches(), 2);
  EXPECT_EQ(plan.summary.units(), 3);
  EXPECT_GT(plan.summary.arena_bytes(), 0);
}

TEST(ScheduleCompilerTest, TheStepThatTapsTravels) {
  v1::Job job;
  *job.mutable_spec() =
      MakeJobWith("output { tap_step: 2 taps: 'head.logits' }");
  ASSERT_OK_AND_ASSIGN(AdmittedJob admitted,
                       Admit(job.spec(), ScheduleCompiler()));
  const CompiledPlan& plan = *admitted.plan;
  ASSERT_TRUE(plan.tapped.has_value());
  EXPECT_EQ(plan.tapped->ops_size(),
            plan.train.ops_size() + plan.summary.microbatches());
  const auto message = MakePrepare(job, plan, /*epoch=*/1, /*rank=*/0);
  EXPECT_EQ(message.prepare().tapped().ops_size(), plan.tapped->ops_size());
  ASSERT_OK_AND_ASSIGN(admitted, Admit(MakeLegalJob(), ScheduleCompiler()));
  EXPECT_FALSE(admitted.plan->tapped.has_value());
}

// Two vectors of norms, then qkv and output of attention, router and experts of
// two layers; norm, embedding and output.
TEST(ScheduleCompilerTest, CountsParameters) {
  ASSERT_OK_AND_ASSIGN(CompiledPlan plan,
                       ScheduleCompiler().Compile(MakeLegalJob()));
  const int64_t h = 32;
  const int64_t layer =
      2 * h + (4 + 2 * 2) * 8 * h + h * h + 4 * h + 4 * 3 * 48 * h;
  EXPECT_EQ(plan.summary.parameters(), 2 * layer + h + 2 * 256 * h);
}

TEST(ScheduleCompilerTest, ShardingTakesLessState) {
  v1::TrainingJob job = MakeLegalJob(4, 1);
  ASSERT_OK_AND_ASSIGN(CompiledPlan sharded, ScheduleCompiler().Compile(job));
  job.mutable_fsdp()->set_strategy(v1::SHARDING_STRATEGY_NO_SHARD);
  ASSERT_OK_AND_ASSIGN(CompiledPlan whole, ScheduleCompiler().Compile(job));
  EXPECT_EQ(whole.summary.state_bytes(), 4 * sharded.summary.state_bytes());
  EXPECT_GE(whole.summary.state_bytes(), 16 * whole.summary.parameters());
}

TEST(ScheduleCompilerTest, DescribesThePlanOfARank) {
  const v1::TrainingJob job = MakeLegalJob(4, 2);
  ASSERT_OK_AND_ASSIGN(v1::GetPlanResponse plan,
                       DescribePlan(job, 3, ScheduleCompiler()));
  EXPECT_THAT(plan.text(), StartsWith("rank 3 of 4: ep=[2 3] edp=[1 3]\n"));
  EXPECT_THAT(plan.text(), HasSubstr("dispatch"));
  EXPECT_THAT(plan.timeline(), HasSubstr("compute"));
  EXPECT_THAT(DescribePlan(job, 4, ScheduleCompiler()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("rank=4; must be 0 to 3")));
}

// What the rules let through, the compiler takes.
TEST(ScheduleCompilerTest, CompilesEveryKindOfLegalJob) {
  for (const char* text :
       {"schedule { order: SCHEDULE_ORDER_SEQUENTIAL }",
        "schedule { delay_wgrad: true }", "batch { global_batch: 2 }",
        "parallel { ep: 1 }", "model { tie_embeddings: true }",
        "parallel { world: 1 ep: 1 }", "fsdp { prefetch_bytes: 1 }",
        "model { dense_layers: 0 ffn_hidden_size: 40 }",
        "model { dense_layers: [0, 1] ffn_hidden_size: 8 } parallel { ep: 1 }",
        "model { moe { shared_expert_hidden_size: 24 } }",
        "model { moe { num_experts: 2 top_k: 1 top_k_normalization: "
        "TOP_K_NORMALIZATION_RAW } }",
        "fsdp { strategy: SHARDING_STRATEGY_NO_SHARD }"}) {
    SCOPED_TRACE(text);
    EXPECT_OK(Admit(MakeJobWith(text), ScheduleCompiler()));
  }
  v1::TrainingJob dense = MakeLegalJob(2, 1);
  dense.mutable_model()->clear_moe();
  dense.mutable_model()->set_ffn_hidden_size(64);
  EXPECT_OK(Admit(dense, ScheduleCompiler()));
}

}  // namespace
}  // namespace weft::coordinator

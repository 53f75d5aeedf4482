#include "client/offline_plan.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/status_matchers.h"
#include "client/job_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::client {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

JobFile ReadExample(const std::vector<std::string>& sets) {
  auto file = ReadJobFile("examples/moe_text.yaml", sets);
  EXPECT_OK(file);
  for (const FieldError& error : file->errors) ADD_FAILURE() << ToString(error);
  return *std::move(file);
}

// The refusal of the example with fields set.
std::string Refusal(const std::vector<std::string>& sets) {
  const auto plan = CompilePlan(ReadExample(sets).job, 0, 80);
  EXPECT_THAT(plan.status(), StatusIs(absl::StatusCode::kInvalidArgument));
  return std::string(plan.status().message());
}

TEST(OfflinePlanTest, TheExampleCompiles) {
  const JobFile file = ReadExample({});
  ASSERT_OK_AND_ASSIGN(const v1::GetPlanResponse plan,
                       CompilePlan(file.job, 3, 100));
  EXPECT_THAT(plan.text(),
              StartsWith("rank 3 of 4: ep=[2 3] edp=[1 3]\ntrain: "));
  EXPECT_THAT(plan.text(), HasSubstr("\n\neval: "));
  EXPECT_THAT(plan.text(), HasSubstr("\n  head.logits  "));
  EXPECT_THAT(plan.text(), Not(HasSubstr("with taps")));
  EXPECT_FALSE(plan.timeline().empty());
  EXPECT_GT(plan.summary().ops(), 0);
  EXPECT_GT(plan.summary().parameters(), 1000000);
  // Four numbers of four bytes for each, on four ranks.
  EXPECT_EQ(plan.summary().state_bytes(), 4 * plan.summary().parameters());
}

TEST(OfflinePlanTest, TheStepThatTapsIsShown) {
  const JobFile file =
      ReadExample({"output.tap_step=1", "output.taps=[head.logits]"});
  ASSERT_OK_AND_ASSIGN(const v1::GetPlanResponse plan,
                       CompilePlan(file.job, 0, 100));
  EXPECT_THAT(plan.text(), HasSubstr("\n\ntrain with taps: "));
  EXPECT_THAT(plan.text(), HasSubstr("(head.logits)"));
}

// By the rules of the coordinator, all of them.
TEST(OfflinePlanTest, WhatIsNotLegalIsNotCompiled) {
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"parallel.ep=3"}, "parallel.ep=3"},
      {{"parallel.world=0"}, "parallel.world is required and not set"},
      {{"model.moe.router_loss.aux=-1"}, "model.moe.router_loss.aux=-1"},
      {{"model.moe.router_loss.global_aux=-1"},
       "model.moe.router_loss.global_aux=-1"},
      {{"model.attention.head_dim=3"}, "model.attention.head_dim=3"},
      {{"optimizer.learning_rate=-1"}, "optimizer.learning_rate=-1"},
      {{"fsdp.prefetch_bytes=-5"}, "fsdp.prefetch_bytes=-5"},
      {{"output.tap_step=1", "output.taps=[nope]"}, "nope"},
      {{"model.moe.shared_expert_hidden_size=0",
        "model.moe.shared_expert_gate=true"},
       "model.moe.shared_expert_gate"},
      {{"batch.global_batch=65"}, "batch.global_batch=65"},
  };
  for (const auto& [sets, says] : cases) {
    EXPECT_THAT(Refusal(sets), HasSubstr(says));
  }
  EXPECT_THAT(CompilePlan(v1::TrainingJob(), 0, 80),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("model is required and not set")));
}

// Their bytes are more than 64 bits can count.
TEST(OfflinePlanTest, SizesWhoseBytesCannotBeCountedAreRefused) {
  EXPECT_THAT(Refusal({"model.vocab_size=1048576", "model.hidden_size=65536",
                       "model.moe={num_experts: 4096, top_k: 4096, "
                       "expert_hidden_size: 1048576}",
                       "data.sequence_length=1048576",
                       "batch.global_batch=1048576", "batch.microbatch=65536",
                       "parallel.world=16", "parallel.ep=16"}),
              HasSubstr("1024 PiB"));
}

TEST(OfflinePlanTest, ARankOutsideTheWorldIsRefused) {
  const JobFile file = ReadExample({});
  EXPECT_THAT(CompilePlan(file.job, 4, 80),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("rank 4 is not in [0, 4)")));
}

}  // namespace
}  // namespace weft::client

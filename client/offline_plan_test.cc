#include "client/offline_plan.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/status_matchers.h"
#include "client/job_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::client {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

JobFile ReadExample(const std::vector<std::string>& sets) {
  auto file = ReadJobFile("examples/moe_text.yaml", sets);
  EXPECT_OK(file);
  for (const FieldError& error : file->errors) ADD_FAILURE() << ToString(error);
  return *std::move(file);
}

std::vector<std::string> Obstacles(const std::vector<std::string>& sets) {
  const JobFile file = ReadExample(sets);
  std::vector<std::string> texts;
  for (const FieldError& error : PlanObstacles(file.job, file.origins)) {
    texts.push_back(ToString(error));
  }
  return texts;
}

TEST(OfflinePlanTest, TheExampleCompiles) {
  const JobFile file = ReadExample({});
  EXPECT_THAT(PlanObstacles(file.job, file.origins), IsEmpty());
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

TEST(OfflinePlanTest, WhatCannotBeCompiledIsNamedWithItsPlace) {
  EXPECT_THAT(Obstacles({"parallel.ep=3"}),
              Contains("--set: parallel.ep: 3 does not divide "
                       "parallel.world=4"));
  EXPECT_THAT(Obstacles({"parallel.ep=3"}),
              Contains("--set: parallel.ep: 3 does not divide "
                       "model.moe.num_experts=8"));
  EXPECT_THAT(Obstacles({"parallel.world=0"}),
              Contains("--set: parallel.world: is required and not set; must "
                       "be 1 to 65536"));
  EXPECT_THAT(Obstacles({"parallel.world=65537"}),
              Contains("--set: parallel.world: 65537 is not in [1, 65536]"));
  EXPECT_THAT(Obstacles({"model.attention.num_kv_heads=3"}),
              Contains("--set: model.attention.num_kv_heads: 3 does not divide "
                       "num_heads=4"));
  EXPECT_THAT(Obstacles({"fsdp.buffer_slots=2147483647"}),
              Contains("--set: fsdp.buffer_slots: 2147483647 is not in [0, "
                       "1024]"));
  EXPECT_THAT(Obstacles({"fsdp.buffer_slots=2", "fsdp.strategy=optim"}),
              Contains("--set: fsdp.buffer_slots: must be 0 unless strategy is "
                       "optim_grads_params"));
  EXPECT_THAT(Obstacles({"model.moe.max_rows_factor=0.5"}),
              Contains("--set: model.moe.max_rows_factor: 0.5 is not in "
                       "[1, 65536]"));
  EXPECT_THAT(Obstacles({"model.moe.top_k=9"}),
              Contains("--set: model.moe.top_k: 9 is not in [1, 8]"));
  EXPECT_THAT(Obstacles({"model.dense_layers=[4]"}),
              Contains("--set: model.dense_layers[0]: 4 is not in [0, 3]"));
  EXPECT_THAT(Obstacles({"batch.global_batch=65"}),
              Contains("--set: batch.global_batch: 65 is not a multiple of "
                       "batch.microbatch * parallel.world = 16"));
}

TEST(OfflinePlanTest, WhatIsNotGivenIsSaidToBeMissing) {
  std::vector<std::string> texts;
  for (const auto& error : PlanObstacles(v1::TrainingJob(), FieldOrigins())) {
    texts.push_back(ToString(error));
  }
  EXPECT_THAT(texts, ElementsAre("model: is required and not set",
                                 "data: is required and not set",
                                 "parallel: is required and not set",
                                 "batch: is required and not set"));
  EXPECT_THAT(Obstacles({"model.attention.num_heads=0"}),
              ElementsAre("--set: model.attention.num_heads: is required and "
                          "not set; must be 1 to 1024"));
}

// It would take all of the memory to compile.
TEST(OfflinePlanTest, AStepOfTooManyLayerPassesIsRefused) {
  EXPECT_THAT(Obstacles({"model.num_layers=1024", "batch.global_batch=512"}),
              IsEmpty());
  EXPECT_THAT(Obstacles({"model.num_layers=1024", "batch.global_batch=528"}),
              ElementsAre("--set: batch.global_batch: 33 microbatches of 1024 "
                          "layers make 33792 layer passes in one step; at most "
                          "32768"));
}

TEST(OfflinePlanTest, ARankOutsideTheWorldIsRefused) {
  const JobFile file = ReadExample({});
  EXPECT_THAT(CompilePlan(file.job, 4, 80),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("rank 4 is not in [0, 4)")));
}

}  // namespace
}  // namespace weft::client

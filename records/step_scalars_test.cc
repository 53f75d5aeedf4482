#include "records/step_scalars.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::records {
namespace {

using ::testing::ElementsAre;
using ::testing::IsSupersetOf;

std::vector<std::string> Texts(const std::vector<Scalar>& scalars) {
  std::vector<std::string> texts;
  for (const Scalar& scalar : scalars) {
    texts.push_back(absl::StrCat(scalar.tag, "=", scalar.value));
  }
  return texts;
}

TEST(StepScalarsTest, AStepHasItsNumbersUnderMegatronsTags) {
  v1::StepMetrics step;
  step.set_loss(2.5);
  step.set_objective(2.75);
  step.set_learning_rate(0.5);
  step.set_grad_norm(4);
  step.set_tokens(640);
  step.set_step_seconds(0.25);
  EXPECT_THAT(Texts(ScalarsOf(step, 8)),
              ElementsAre("lm loss=2.5", "objective=2.75", "learning-rate=0.5",
                          "grad-norm=4", "batch-size=8", "iteration-time=0.25",
                          "tokens per second=2560"));
}

TEST(StepScalarsTest, WhatWasMeasuredBesideIsInGroups) {
  v1::StepMetrics step;
  step.set_ep_seconds(4);
  step.set_ep_exposed_seconds(1);
  step.set_fsdp_seconds(3);
  step.set_fsdp_exposed_seconds(2.5);
  step.set_gather_seconds(1);
  step.set_gather_exposed_seconds(0.5);
  step.set_expert_imbalance(1.5);
  step.set_peak_device_bytes(1024);
  v1::RouterLoss& loss = *step.add_router_losses();
  loss.set_layer(3);
  loss.set_name("aux");
  loss.set_value(1.25);
  v1::MemoryUse& use = *step.add_memory();
  use.set_category("gradients");
  use.set_bytes(512);
  EXPECT_THAT(
      Texts(ScalarsOf(step, 8)),
      IsSupersetOf(
          {"comm/ep exposed seconds=1", "comm/ep hidden ratio=0.75",
           "comm/gather exposed seconds=0.5", "comm/gather hidden ratio=0.5",
           "comm/reduce exposed seconds=2", "comm/reduce hidden ratio=0",
           "router/aux layer 3=1.25", "router/expert imbalance=1.5",
           "memory/peak bytes=1024", "memory/gradients bytes=512"}));
}

TEST(StepScalarsTest, AValidationHasItsLoss) {
  v1::EvalMetrics eval;
  eval.set_loss(1.5);
  EXPECT_THAT(Texts(ScalarsOf(eval)), ElementsAre("lm loss validation=1.5"));
}

}  // namespace
}  // namespace weft::records

#include "fsdp/runtime/learning_rate.h"

#include "gtest/gtest.h"

namespace weft::fsdp {
namespace {

LearningRateSchedule Cosine() {
  LearningRateSchedule schedule;
  schedule.peak = 1.0;
  schedule.minimum = 0.2;
  schedule.warmup_steps = 4;
  schedule.steps = 12;
  schedule.cosine = true;
  return schedule;
}

TEST(LearningRateTest, WarmsUpLinearlyFromZero) {
  const LearningRateSchedule schedule = Cosine();
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 1), 0.25);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 3), 0.75);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 4), 1.0);
}

TEST(LearningRateTest, CosineEndsAtTheMinimumOnTheLastStep) {
  const LearningRateSchedule schedule = Cosine();
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 8), 0.6);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 12), 0.2);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 13), 0.2);
  for (int64_t step = 5; step <= 12; ++step) {
    EXPECT_LT(LearningRate(schedule, step), LearningRate(schedule, step - 1));
  }
}

TEST(LearningRateTest, ConstantStaysAtThePeak) {
  LearningRateSchedule schedule = Cosine();
  schedule.cosine = false;
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 2), 0.5);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 12), 1.0);
}

TEST(LearningRateTest, WarmupOfAllStepsNeverDecays) {
  LearningRateSchedule schedule = Cosine();
  schedule.warmup_steps = 12;
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 12), 1.0);
}

TEST(LearningRateTest, ReadsTheJob) {
  v1::OptimizerConfig config;
  config.set_learning_rate(0.5);
  config.set_min_learning_rate(0.1);
  config.set_warmup_steps(3);
  config.set_decay(v1::DECAY_COSINE);
  const LearningRateSchedule schedule = LearningRateOf(config, 10);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 3), 0.5);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 10), 0.1);
}

}  // namespace
}  // namespace weft::fsdp

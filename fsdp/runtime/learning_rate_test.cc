#include "fsdp/runtime/learning_rate.h"

#include <cmath>

#include "gtest/gtest.h"

namespace weft::fsdp {
namespace {

LearningRateSchedule Cosine() {
  LearningRateSchedule schedule;
  schedule.peak = 1.0;
  schedule.minimum = 0.2;
  schedule.warmup_steps = 4;
  schedule.steps = 12;
  schedule.decay = v1::DECAY_COSINE;
  return schedule;
}

// Four steps of warmup, four at the peak, four of decay.
LearningRateSchedule Wsd(v1::WsdShape shape) {
  LearningRateSchedule schedule = Cosine();
  schedule.decay = v1::DECAY_WSD;
  schedule.wsd_decay_steps = 4;
  schedule.wsd_shape = shape;
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
  schedule.decay = v1::DECAY_CONSTANT;
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 2), 0.5);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 12), 1.0);
}

TEST(LearningRateTest, WarmupOfAllStepsNeverDecays) {
  LearningRateSchedule schedule = Cosine();
  schedule.warmup_steps = 12;
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 12), 1.0);
}

TEST(LearningRateTest, WsdWarmsUpStaysAndEndsAtTheMinimum) {
  for (v1::WsdShape shape :
       {v1::WSD_SHAPE_UNSPECIFIED, v1::WSD_SHAPE_LINEAR, v1::WSD_SHAPE_COSINE,
        v1::WSD_SHAPE_EXPONENTIAL, v1::WSD_SHAPE_MINUS_SQRT}) {
    const LearningRateSchedule schedule = Wsd(shape);
    EXPECT_DOUBLE_EQ(LearningRate(schedule, 1), 0.25);
    for (int64_t step = 4; step <= 8; ++step) {
      EXPECT_DOUBLE_EQ(LearningRate(schedule, step), 1.0);
    }
    for (int64_t step = 9; step <= 12; ++step) {
      EXPECT_LT(LearningRate(schedule, step), LearningRate(schedule, step - 1));
    }
    EXPECT_DOUBLE_EQ(LearningRate(schedule, 12), 0.2);
    EXPECT_DOUBLE_EQ(LearningRate(schedule, 13), 0.2);
  }
}

TEST(LearningRateTest, WsdShapesAreThoseOfTheDocs) {
  const auto shape_at = [](v1::WsdShape shape, int64_t step) {
    return (LearningRate(Wsd(shape), step) - 0.2) / 0.8;
  };
  for (int64_t step = 9; step <= 11; ++step) {
    const double x = static_cast<double>(step - 8) / 4;
    EXPECT_NEAR(shape_at(v1::WSD_SHAPE_LINEAR, step), 1 - x, 1e-15);
    EXPECT_NEAR(shape_at(v1::WSD_SHAPE_UNSPECIFIED, step), 1 - x, 1e-15);
    EXPECT_NEAR(shape_at(v1::WSD_SHAPE_COSINE, step),
                (1 + std::cos(M_PI * x)) / 2, 1e-15);
    EXPECT_NEAR(shape_at(v1::WSD_SHAPE_EXPONENTIAL, step),
                2 * std::pow(0.5, x) - 1, 1e-15);
    EXPECT_NEAR(shape_at(v1::WSD_SHAPE_MINUS_SQRT, step), 1 - std::sqrt(x),
                1e-15);
  }
}

TEST(LearningRateTest, WsdMayDecayFromTheEndOfTheWarmup) {
  LearningRateSchedule schedule = Wsd(v1::WSD_SHAPE_LINEAR);
  schedule.wsd_decay_steps = 8;
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 3), 0.75);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 4), 1.0);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 5), 0.9);
  schedule.wsd_decay_steps = 1;
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 11), 1.0);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 12), 0.2);
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
  config.set_decay(v1::DECAY_WSD);
  config.set_wsd_decay_steps(2);
  config.set_wsd_shape(v1::WSD_SHAPE_MINUS_SQRT);
  EXPECT_DOUBLE_EQ(LearningRate(LearningRateOf(config, 10), 8), 0.5);
  EXPECT_DOUBLE_EQ(LearningRate(LearningRateOf(config, 10), 9),
                   0.1 + 0.4 * (1 - std::sqrt(0.5)));
}

}  // namespace
}  // namespace weft::fsdp

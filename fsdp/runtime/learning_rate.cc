#include "fsdp/runtime/learning_rate.h"

#include <algorithm>
#include <cmath>

namespace weft::fsdp {

LearningRateSchedule LearningRateOf(const v1::OptimizerConfig& config,
                                    int64_t steps) {
  LearningRateSchedule schedule;
  schedule.peak = config.learning_rate();
  schedule.minimum = config.min_learning_rate();
  schedule.warmup_steps = config.warmup_steps();
  schedule.steps = steps;
  schedule.cosine = config.decay() == v1::DECAY_COSINE;
  return schedule;
}

double LearningRate(const LearningRateSchedule& schedule, int64_t step) {
  const double at = static_cast<double>(step);
  const double warmup = static_cast<double>(schedule.warmup_steps);
  if (step < schedule.warmup_steps) return schedule.peak * at / warmup;
  const double decaying = static_cast<double>(schedule.steps) - warmup;
  if (!schedule.cosine || decaying <= 0) return schedule.peak;
  constexpr double kPi = 3.14159265358979323846;
  const double progress = std::min(1.0, (at - warmup) / decaying);
  const double cosine = 0.5 * (1 + std::cos(kPi * progress));
  return schedule.minimum + (schedule.peak - schedule.minimum) * cosine;
}

}  // namespace weft::fsdp

#include "fsdp/runtime/learning_rate.h"

#include <algorithm>
#include <cmath>

namespace weft::fsdp {
namespace {

double HalfCosine(double x) {
  constexpr double kPi = 3.14159265358979323846;
  return 0.5 * (1 + std::cos(kPi * x));
}

// Falls from 1 at `x` = 0 to 0 at 1.
double WsdShape(v1::WsdShape shape, double x) {
  switch (shape) {
    case v1::WSD_SHAPE_COSINE:
      return HalfCosine(x);
    case v1::WSD_SHAPE_EXPONENTIAL:
      return 2 * std::pow(0.5, x) - 1;
    case v1::WSD_SHAPE_MINUS_SQRT:
      return 1 - std::sqrt(x);
    default:
      return 1 - x;
  }
}

// Share of `steps` decaying steps, the last of which is step `end`, that `step`
// has behind it.
double Progress(int64_t step, int64_t end, int64_t steps) {
  const double behind = static_cast<double>(step - (end - steps));
  return std::min(1.0, std::max(0.0, behind / static_cast<double>(steps)));
}

}  // namespace

LearningRateSchedule LearningRateOf(const v1::OptimizerConfig& config,
                                    int64_t steps) {
  LearningRateSchedule schedule;
  schedule.peak = config.learning_rate();
  schedule.minimum = config.min_learning_rate();
  schedule.warmup_steps = config.warmup_steps();
  schedule.steps = steps;
  schedule.decay = config.decay();
  schedule.wsd_decay_steps = config.wsd_decay_steps();
  schedule.wsd_shape = config.wsd_shape();
  return schedule;
}

double LearningRate(const LearningRateSchedule& schedule, int64_t step) {
  const double range = schedule.peak - schedule.minimum;
  if (step < schedule.warmup_steps) {
    return schedule.peak * static_cast<double>(step) /
           static_cast<double>(schedule.warmup_steps);
  }
  const int64_t decaying = schedule.steps - schedule.warmup_steps;
  if (schedule.decay == v1::DECAY_COSINE && decaying > 0) {
    return schedule.minimum +
           range * HalfCosine(Progress(step, schedule.steps, decaying));
  }
  if (schedule.decay == v1::DECAY_WSD) {
    const double x = Progress(step, schedule.steps, schedule.wsd_decay_steps);
    return schedule.minimum + range * WsdShape(schedule.wsd_shape, x);
  }
  return schedule.peak;
}

}  // namespace weft::fsdp

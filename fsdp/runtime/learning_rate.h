// The learning rate as a pure function of the step.
#ifndef WEFT_FSDP_RUNTIME_LEARNING_RATE_H_
#define WEFT_FSDP_RUNTIME_LEARNING_RATE_H_

#include <cstdint>

#include "weft/v1/job.pb.h"

namespace weft::fsdp {

// Linear warmup from 0, then constant, or half a cosine down to `minimum` at
// the last step.
struct LearningRateSchedule {
  double peak = 0;
  double minimum = 0;
  int64_t warmup_steps = 0;
  int64_t steps = 0;  // of the job
  bool cosine = false;
};

LearningRateSchedule LearningRateOf(const v1::OptimizerConfig& config,
                                    int64_t steps);

// Rate of `step`, from 1. Step warmup_steps is the first at the peak.
double LearningRate(const LearningRateSchedule& schedule, int64_t step);

}  // namespace weft::fsdp

#endif  // WEFT_FSDP_RUNTIME_LEARNING_RATE_H_

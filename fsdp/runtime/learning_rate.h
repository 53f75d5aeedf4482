// The learning rate as a pure function of the step.
#ifndef WEFT_FSDP_RUNTIME_LEARNING_RATE_H_
#define WEFT_FSDP_RUNTIME_LEARNING_RATE_H_

#include <cstdint>

#include "weft/v1/job.pb.h"

namespace weft::fsdp {

// A linear warmup from 0 to `peak`, then a decay to `minimum`, or none.
struct LearningRateSchedule {
  double peak = 0;
  double minimum = 0;
  int64_t warmup_steps = 0;
  int64_t steps = 0;  // of the job
  v1::Decay decay = v1::DECAY_CONSTANT;
  // The decay of DECAY_WSD: over the last so many steps.
  int64_t wsd_decay_steps = 0;
  v1::WsdShape wsd_shape = v1::WSD_SHAPE_LINEAR;
};

LearningRateSchedule LearningRateOf(const v1::OptimizerConfig& config,
                                    int64_t steps);

// Rate of `step`, from 1. Step warmup_steps is the first at the peak, step
// `steps` the first at the minimum. The shapes are those of job.proto:
// rate = minimum + (peak - minimum) * shape, the share decayed being that of
// the steps since warmup or, for DECAY_WSD, since steps - wsd_decay_steps, the
// last step at the peak. Those of DECAY_WSD are Megatron-LM's.
double LearningRate(const LearningRateSchedule& schedule, int64_t step);

}  // namespace weft::fsdp

#endif  // WEFT_FSDP_RUNTIME_LEARNING_RATE_H_

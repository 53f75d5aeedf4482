#include <algorithm>

#include "kernels/ops/cuda_form.h"
#include "kernels/ops/loss_weights/loss_weights.h"

namespace weft::ops {

void LossWeights(const LossWeightsArgs& args, device::Stream& stream) {
  if (RunOnCuda<&LossWeights>(args, stream)) return;
  double microbatch = 0;
  double step = 0;
  for (int64_t rank = 0; rank < args.ranks; ++rank) {
    microbatch += args.counted[2 * rank];
    step += args.counted[2 * rank + 1];
  }
  const double token = args.over_step ? args.step_tokens / std::max(step, 1.0)
                                      : args.tokens / std::max(microbatch, 1.0);
  args.weights[0] = static_cast<float>(token);
  args.weights[1] = args.over_step ? args.weights[0] : 1.0f;
}

}  // namespace weft::ops

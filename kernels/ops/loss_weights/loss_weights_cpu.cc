#include <algorithm>

#include "kernels/ops/cuda_form.h"
#include "kernels/ops/loss_weights/loss_weights.h"

namespace weft::ops {

void LossWeights(const LossWeightsArgs& args, device::Stream& stream) {
  if (RunOnCuda<&LossWeights>(args, stream)) return;
  double microbatch = 0;
  double step = 0;
  double valid = 0;
  for (int64_t rank = 0; rank < args.ranks; ++rank) {
    microbatch += args.counted[3 * rank];
    step += args.counted[3 * rank + 1];
    valid += args.counted[3 * rank + 2];
  }
  const double of_step = args.step_tokens / std::max(step, 1.0);
  const double of_microbatch = args.tokens / std::max(microbatch, 1.0);
  const double ratio = args.tokens / std::max(valid, 1.0);
  const double router = args.over_step ? of_step / ratio : 1.0;
  const double weights[] = {args.over_step ? of_step : of_microbatch,
                            router,
                            ratio * ratio,
                            ratio,
                            router * ratio * ratio,
                            router * ratio};
  for (int i = 0; i < 6; ++i) args.weights[i] = static_cast<float>(weights[i]);
}

}  // namespace weft::ops

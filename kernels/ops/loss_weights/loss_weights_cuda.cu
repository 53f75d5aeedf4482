#include "kernels/device/cuda/launch.h"
#include "kernels/ops/cuda_form.h"
#include "kernels/ops/loss_weights/loss_weights.h"

namespace weft::ops {
namespace {

__global__ void WeighLosses(LossWeightsArgs args) {
  double microbatch = 0;
  double step = 0;
  for (int64_t rank = 0; rank < args.ranks; ++rank) {
    microbatch += args.counted[2 * rank];
    step += args.counted[2 * rank + 1];
  }
  const double token = args.over_step ? args.step_tokens / fmax(step, 1.0)
                                      : args.tokens / fmax(microbatch, 1.0);
  args.weights[0] = static_cast<float>(token);
  args.weights[1] = args.over_step ? static_cast<float>(token) : 1.0f;
}

void Run(const LossWeightsArgs& args, device::Stream& stream) {
  WeighLosses<<<1, 1, 0, device::cuda::Handle(stream)>>>(args);
  device::cuda::CheckLaunch("LossWeights", stream);
}

[[maybe_unused]] const bool kRegistered = RegisterCudaForm<&LossWeights>(&Run);

}  // namespace
}  // namespace weft::ops

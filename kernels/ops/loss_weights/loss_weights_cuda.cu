#include "kernels/device/cuda/launch.h"
#include "kernels/ops/cuda_form.h"
#include "kernels/ops/loss_weights/loss_weights.h"

namespace weft::ops {
namespace {

// Of all ranks.
__device__ double Sum(const LossWeightsArgs& args, int column) {
  double sum = 0;
  for (int64_t rank = 0; rank < args.ranks; ++rank) {
    sum += args.counted[rank * (3 + args.depths) + column];
  }
  return sum;
}

__global__ void WeighLosses(LossWeightsArgs args) {
  const double microbatch = Sum(args, 0);
  const double of_step = args.step_tokens / fmax(Sum(args, 1), 1.0);
  if (args.weights != nullptr) {
    const double of_microbatch = args.tokens / fmax(microbatch, 1.0);
    const double ratio = args.tokens / fmax(Sum(args, 2), 1.0);
    const double router = args.over_step ? of_step / ratio : 1.0;
    const double weights[] = {args.over_step ? of_step : of_microbatch,
                              router,
                              ratio * ratio,
                              ratio,
                              router * ratio * ratio,
                              router * ratio};
    for (int i = 0; i < 6; ++i) {
      args.weights[i] = static_cast<float>(weights[i]);
    }
  }
  const double all = args.over_step ? microbatch * of_step : args.tokens;
  for (int k = 0; k < args.depths; ++k) {
    const double labels = fmax(Sum(args, 3 + k), 1.0);
    *args.depth_weights[k] =
        static_cast<float>(args.depth_factor * all / labels);
  }
}

void Run(const LossWeightsArgs& args, device::Stream& stream) {
  WeighLosses<<<1, 1, 0, device::cuda::Handle(stream)>>>(args);
  device::cuda::CheckLaunch("LossWeights", stream);
}

[[maybe_unused]] const bool kRegistered = RegisterCudaForm<&LossWeights>(&Run);

}  // namespace
}  // namespace weft::ops

#include "kernels/ops/cuda_form.h"
#include "kernels/ops/weighted_sum/weighted_sum.h"

namespace weft::ops {

void WeightedSum(const WeightedSumArgs& args, device::Stream& stream) {
  if (RunOnCuda<&WeightedSum>(args, stream)) return;
  double sum = 0;
  for (int64_t i = 0; i < args.count; ++i) sum += args.weights[i] * *args.x[i];
  *args.out = sum;
}

}  // namespace weft::ops

// OptimizerScalars: what an optimizer reads anew in every step.
#ifndef WEFT_KERNELS_OPS_OPTIMIZER_SCALARS_H_
#define WEFT_KERNELS_OPS_OPTIMIZER_SCALARS_H_

#include <cstdint>

namespace weft::ops {

// Read when the op runs, not when it is launched, so that a step can be
// launched before its gradient norm is known. Without padding: compared by its
// bytes.
struct OptimizerScalars {
  double learning_rate = 0;
  double grad_scale = 1;  // applied to a gradient first: the clipping factor
  // AdamW only: 1 - beta^step.
  double bias1 = 1;
  double bias2 = 1;
  int64_t skip = 0;  // other than 0: nothing is updated
};

}  // namespace weft::ops

#endif  // WEFT_KERNELS_OPS_OPTIMIZER_SCALARS_H_

// AdamW with decoupled weight decay, PyTorch's formula, over a flat segment.
//
//   g = grad_scale * grad
//   m = beta1 * m + (1 - beta1) * g
//   v = beta2 * v + (1 - beta2) * g^2
//   w = w - lr * weight_decay * w
//   w = w - lr * (m / bias1) / (sqrt(v / bias2) + eps)
//   with bias1 = 1 - beta1^step, bias2 = 1 - beta2^step, the first step is 1,
//   and lr = learning_rate * learning_rate_scale
//
// State is fp32, a gradient may be bf16; each element is computed in fp64 and
// rounded once per value stored (1 - beta in fp32 alone would cost 3e-5).
#ifndef WEFT_KERNELS_OPS_ADAMW_ADAMW_H_
#define WEFT_KERNELS_OPS_ADAMW_ADAMW_H_

#include <cstdint>

#include "kernels/ops/optimizer_scalars.h"
#include "kernels/ops/stream.h"

namespace weft::ops {

struct AdamWArgs {
  int64_t count = 0;
  // In memory that the device reads.
  const OptimizerScalars* scalars = nullptr;
  double learning_rate_scale = 1;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  ConstTensor grad;    // [count]
  float* w = nullptr;  // [count]
  float* m = nullptr;  // [count]
  float* v = nullptr;  // [count]
  // [1], or-ed with all bits of weights that change; may be null.
  uint32_t* changed_bits = nullptr;
};
void AdamW(const AdamWArgs& args, device::Stream& stream);

}  // namespace weft::ops

#endif  // WEFT_KERNELS_OPS_ADAMW_ADAMW_H_

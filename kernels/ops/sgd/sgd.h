// Stochastic gradient descent with momentum, as torch.optim.SGD (dampening 0,
// no Nesterov), and with decoupled weight decay in place of its L2 penalty, as
// in Loshchilov and Hutter, "Decoupled weight decay regularization", over a
// flat segment.
//
//   g = grad_scale * grad
//   m = momentum * m + g        (with momentum; m starts as zero)
//   w = w - lr * weight_decay * w
//   w = w - lr * m              (without momentum: lr * g)
//   with lr = learning_rate * learning_rate_scale
//
// State is fp32, a gradient may be bf16; each element is computed in fp64 and
// rounded once per value stored.
#ifndef WEFT_KERNELS_OPS_SGD_SGD_H_
#define WEFT_KERNELS_OPS_SGD_SGD_H_

#include <cstdint>

#include "kernels/ops/optimizer_scalars.h"
#include "kernels/ops/stream.h"

namespace weft::ops {

struct SgdArgs {
  int64_t count = 0;
  // In memory that the device reads.
  const OptimizerScalars* scalars = nullptr;
  double learning_rate_scale = 1;
  double momentum = 0;
  double weight_decay = 0;
  ConstTensor grad;    // [count]
  float* w = nullptr;  // [count]
  float* m = nullptr;  // [count]; null: no momentum, which is then 0
  // [1], or-ed with all bits of weights that change; may be null.
  uint32_t* changed_bits = nullptr;
};
void Sgd(const SgdArgs& args, device::Stream& stream);

}  // namespace weft::ops

#endif  // WEFT_KERNELS_OPS_SGD_SGD_H_

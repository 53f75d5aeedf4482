// The residual stream around a block: y = x + residual_multiplier * f(x).
#ifndef WEFT_WORKER_LAYERS_RESIDUAL_H_
#define WEFT_WORKER_LAYERS_RESIDUAL_H_

#include "kernels/device/device.h"
#include "kernels/device/tensor.h"
#include "model/shape.h"

namespace weft::layers {

// `y`, which holds f(x), becomes the block's output. All are [T,H].
void AddResidual(const model::Shape& shape, const device::ConstTensor& x,
                 const device::Tensor& y, device::Stream& stream);

// The gradient of f(x), given that of the block's output: `dy` itself, or, with
// a multiplier, `scaled`, which is written.
device::ConstTensor BranchGrad(const model::Shape& shape,
                               const device::ConstTensor& dy,
                               const device::Tensor& scaled,
                               device::Stream& stream);

}  // namespace weft::layers

#endif  // WEFT_WORKER_LAYERS_RESIDUAL_H_

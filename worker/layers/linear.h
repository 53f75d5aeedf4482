// Short forms of the ops that most nodes call, with rows = tokens of the
// microbatch unless said otherwise.
#ifndef WEFT_WORKER_LAYERS_LINEAR_H_
#define WEFT_WORKER_LAYERS_LINEAR_H_

#include <cstdint>

#include "kernels/device/device.h"
#include "kernels/device/tensor.h"
#include "worker/layers/node_context.h"

namespace weft::layers {

// Sizes of y [rows, out] = x [rows, in] W^T.
struct Linear {
  int64_t rows = 0;
  int64_t in = 0;
  int64_t out = 0;
};

void Forward(const Linear& size, const device::ConstTensor& x,
             const device::ConstTensor& weight, const device::Tensor& y,
             device::Stream& stream);
// dx = dy W, or dx += dy W.
void Dgrad(const Linear& size, const device::ConstTensor& dy,
           const device::ConstTensor& weight, const device::Tensor& dx,
           device::Stream& stream);
void AddDgrad(const Linear& size, const device::ConstTensor& dy,
              const device::ConstTensor& weight, const device::Tensor& dx,
              device::Stream& stream);
// Nothing when `dweight` is null.
void Wgrad(const Linear& size, const device::ConstTensor& dy,
           const device::ConstTensor& x, const Grad& dweight,
           device::Stream& stream);

// y += bias in every row. Nothing when `bias` is null.
void AddBias(const Linear& size, const device::ConstTensor& bias,
             const device::Tensor& y, device::Stream& stream);
// dbias = sum of the rows of dy. Nothing when `dbias` is null.
void BiasWgrad(const Linear& size, const device::ConstTensor& dy,
               const Grad& dbias, device::Stream& stream);

// RMSNorm over the hidden dimension, or over `columns`.
void NormForward(const model::Shape& shape, const device::ConstTensor& x,
                 const device::ConstTensor& weight, const device::Tensor& y,
                 float* rstd, device::Stream& stream);
void NormForward(const model::Shape& shape, int64_t columns,
                 const device::ConstTensor& x,
                 const device::ConstTensor& weight, const device::Tensor& y,
                 float* rstd, device::Stream& stream);

// Backward of one norm: dx = gradient through the norm + add (when not null),
// and the gradient of its weight (when not null).
struct NormBackwardArgs {
  int64_t columns = 0;  // 0: the hidden dimension
  device::ConstTensor x;
  device::ConstTensor weight;
  const float* rstd = nullptr;
  device::ConstTensor dy;
  device::ConstTensor add;
  device::Tensor dx;
  Grad dweight;
};
void NormBackward(const model::Shape& shape, const NormBackwardArgs& args,
                  device::Stream& stream);

}  // namespace weft::layers

#endif  // WEFT_WORKER_LAYERS_LINEAR_H_

// Flat element-by-element ops. In each, `out` may be an input. All tensors of a
// call but those of Copy have one format.
#ifndef WEFT_KERNELS_OPS_ELEMENTWISE_ELEMENTWISE_H_
#define WEFT_KERNELS_OPS_ELEMENTWISE_ELEMENTWISE_H_

#include <cstdint>

#include "kernels/ops/stream.h"

namespace weft::ops {

// out = a + factor * b, the product fused with the sum
struct AddArgs {
  int64_t count = 0;
  ConstTensor a;
  ConstTensor b;
  Tensor out;
  float factor = 1.0f;
};
void Add(const AddArgs& args, device::Stream& stream);

// out = factor * x
struct ScaleArgs {
  int64_t count = 0;
  float factor = 1.0f;
  ConstTensor x;
  Tensor out;
};
void Scale(const ScaleArgs& args, device::Stream& stream);

// out = 1 / (1 + exp(-x))
struct SigmoidArgs {
  int64_t count = 0;
  const float* x = nullptr;
  float* out = nullptr;
};
void Sigmoid(const SigmoidArgs& args, device::Stream& stream);

// out = dy * y * (1 - y), the gradient of x when y = sigmoid(x).
struct SigmoidDgradArgs {
  int64_t count = 0;
  const float* y = nullptr;
  const float* dy = nullptr;
  float* out = nullptr;
};
void SigmoidDgrad(const SigmoidDgradArgs& args, device::Stream& stream);

// out = value
struct FillArgs {
  int64_t count = 0;
  float value = 0.0f;
  Tensor out;
};
void Fill(const FillArgs& args, device::Stream& stream);

// out = x, converted to the format of `out`. The ranges do not overlap, or, in
// one format, are equal.
struct CopyArgs {
  int64_t count = 0;
  ConstTensor x;
  Tensor out;
};
void Copy(const CopyArgs& args, device::Stream& stream);

}  // namespace weft::ops

#endif  // WEFT_KERNELS_OPS_ELEMENTWISE_ELEMENTWISE_H_

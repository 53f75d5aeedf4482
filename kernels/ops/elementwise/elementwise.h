// Flat element-by-element ops. In each, `out` may be an input.
#ifndef WEFT_KERNELS_OPS_ELEMENTWISE_ELEMENTWISE_H_
#define WEFT_KERNELS_OPS_ELEMENTWISE_ELEMENTWISE_H_

#include <cstdint>

#include "kernels/ops/stream.h"

namespace weft::ops {

// out = a + b
struct AddArgs {
  int64_t count = 0;
  const float* a = nullptr;
  const float* b = nullptr;
  float* out = nullptr;
};
void Add(const AddArgs& args, device::Stream& stream);

// out = factor * x
struct ScaleArgs {
  int64_t count = 0;
  float factor = 1.0f;
  const float* x = nullptr;
  float* out = nullptr;
};
void Scale(const ScaleArgs& args, device::Stream& stream);

// y = y + factor * x, the product and the sum rounded once (fma).
struct AxpyArgs {
  int64_t count = 0;
  float factor = 1.0f;
  const float* x = nullptr;
  float* y = nullptr;
};
void Axpy(const AxpyArgs& args, device::Stream& stream);

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
  float* out = nullptr;
};
void Fill(const FillArgs& args, device::Stream& stream);

// out = x. The ranges are equal or do not overlap.
struct CopyArgs {
  int64_t count = 0;
  const float* x = nullptr;
  float* out = nullptr;
};
void Copy(const CopyArgs& args, device::Stream& stream);

}  // namespace weft::ops

#endif  // WEFT_KERNELS_OPS_ELEMENTWISE_ELEMENTWISE_H_

// Root-mean-square norm over the last dimension.
//
//   rstd = 1 / sqrt(mean(x^2) + eps)      y = x * rstd * weight
//
//   with t = dy * weight and xhat = x * rstd:
//   dx = rstd * (t - xhat * mean(t * xhat))      dweight = sum_rows dy * xhat
//
// All tensors of a call but dweight have one format.
#ifndef WEFT_KERNELS_OPS_RMS_NORM_RMS_NORM_H_
#define WEFT_KERNELS_OPS_RMS_NORM_RMS_NORM_H_

#include <cstdint>

#include "kernels/ops/stream.h"

namespace weft::ops {

// Requires: hidden > 0. `y` may be `x`.
struct RmsNormForwardArgs {
  int64_t rows = 0;
  int64_t hidden = 0;
  float eps = 1e-5f;
  ConstTensor x;          // [rows, hidden]
  ConstTensor weight;     // [hidden]
  Tensor y;               // [rows, hidden]
  float* rstd = nullptr;  // [rows], kept for backward
};
void RmsNormForward(const RmsNormForwardArgs& args, device::Stream& stream);

// The gradient to the input; `add`, when given, is added to it (the gradient
// that reaches the input past the norm). `dx` may be `add` or `dy`.
struct RmsNormDgradArgs {
  int64_t rows = 0;
  int64_t hidden = 0;
  ConstTensor x;                // [rows, hidden]
  ConstTensor weight;           // [hidden]
  const float* rstd = nullptr;  // [rows]
  ConstTensor dy;               // [rows, hidden]
  ConstTensor add;              // [rows, hidden] or null
  Tensor dx;                    // [rows, hidden]
};
void RmsNormDgrad(const RmsNormDgradArgs& args, device::Stream& stream);

// The gradient to the weight; rows are summed in fp64.
struct RmsNormWgradArgs {
  int64_t rows = 0;
  int64_t hidden = 0;
  ConstTensor x;                // [rows, hidden]
  const float* rstd = nullptr;  // [rows]
  ConstTensor dy;               // [rows, hidden]
  Tensor dweight;               // [hidden]; zero-filled when rows == 0
  bool accumulate = false;
};
void RmsNormWgrad(const RmsNormWgradArgs& args, device::Stream& stream);

}  // namespace weft::ops

#endif  // WEFT_KERNELS_OPS_RMS_NORM_RMS_NORM_H_

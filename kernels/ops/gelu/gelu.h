// GELU (Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016) in its exact
// form, with an optional factor per row, the routing probability. With
// cdf(x) = (1 + erf(x / sqrt(2))) / 2 and pdf(x) = exp(-x^2 / 2) / sqrt(2 pi):
//
//   out   = x * cdf(x) * prob
//
//   dx    = d_out * prob * (cdf(x) + x * pdf(x))
//   dprob = sum(d_out * x * cdf(x))
//
// All tensors of a call have one format.
#ifndef WEFT_KERNELS_OPS_GELU_GELU_H_
#define WEFT_KERNELS_OPS_GELU_GELU_H_

#include <cstdint>

#include "kernels/ops/stream.h"

namespace weft::ops {

// `out` may be `x`.
struct GeluForwardArgs {
  int64_t rows = 0;
  int64_t ffn = 0;
  ConstTensor x;                       // [rows, ffn]
  const float* prob = nullptr;         // [rows], or null: 1
  Tensor out;                          // [rows, ffn]
  const int64_t* row_count = nullptr;  // see math/row_count.h
};
void GeluForward(const GeluForwardArgs& args, device::Stream& stream);

// `d_x` may be `x` or `d_out`.
struct GeluBackwardArgs {
  int64_t rows = 0;
  int64_t ffn = 0;
  ConstTensor x;                       // [rows, ffn]
  const float* prob = nullptr;         // [rows], or null: 1
  ConstTensor d_out;                   // [rows, ffn]
  Tensor d_x;                          // [rows, ffn]
  float* d_prob = nullptr;             // [rows], or null: not wanted
  const int64_t* row_count = nullptr;  // see math/row_count.h
};
void GeluBackward(const GeluBackwardArgs& args, device::Stream& stream);

}  // namespace weft::ops

#endif  // WEFT_KERNELS_OPS_GELU_GELU_H_

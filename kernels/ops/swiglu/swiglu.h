// Gated activation with an optional factor per row, the routing probability.
//
//   out = silu(g) * u * prob,   silu(g) = g * s,   s = 1 / (1 + exp(-g))
//
//   dg    = d_out * prob * u * s * (1 + g * (1 - s))
//   du    = d_out * prob * silu(g)
//   dprob = sum(d_out * silu(g) * u)
//
// All tensors of a call have one format.
#ifndef WEFT_KERNELS_OPS_SWIGLU_SWIGLU_H_
#define WEFT_KERNELS_OPS_SWIGLU_SWIGLU_H_

#include <cstdint>

#include "kernels/ops/stream.h"

namespace weft::ops {

struct SwigluForwardArgs {
  int64_t rows = 0;
  int64_t ffn = 0;
  ConstTensor gate_up;                 // [rows, 2 * ffn], gate half first
  const float* prob = nullptr;         // [rows], or null: 1
  Tensor out;                          // [rows, ffn]
  const int64_t* row_count = nullptr;  // see math/row_count.h
};
void SwigluForward(const SwigluForwardArgs& args, device::Stream& stream);

// `d_gate_up` may be `gate_up`.
struct SwigluBackwardArgs {
  int64_t rows = 0;
  int64_t ffn = 0;
  ConstTensor gate_up;                 // [rows, 2 * ffn]
  const float* prob = nullptr;         // [rows], or null: 1
  ConstTensor d_out;                   // [rows, ffn]
  Tensor d_gate_up;                    // [rows, 2 * ffn]
  float* d_prob = nullptr;             // [rows], or null: not wanted
  const int64_t* row_count = nullptr;  // see math/row_count.h
};
void SwigluBackward(const SwigluBackwardArgs& args, device::Stream& stream);

}  // namespace weft::ops

#endif  // WEFT_KERNELS_OPS_SWIGLU_SWIGLU_H_

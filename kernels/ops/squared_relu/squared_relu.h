// Squared ReLU (So et al., "Primer: Searching for Efficient Transformers for
// Language Modeling", 2021) with an optional factor per row, the routing
// probability.
//
//   out   = relu(x)^2 * prob
//
//   dx    = d_out * prob * 2 * relu(x)
//   dprob = sum(d_out * relu(x)^2)
//
// All tensors of a call have one format.
#ifndef WEFT_KERNELS_OPS_SQUARED_RELU_SQUARED_RELU_H_
#define WEFT_KERNELS_OPS_SQUARED_RELU_SQUARED_RELU_H_

#include <cstdint>

#include "kernels/ops/stream.h"

namespace weft::ops {

// `out` may be `x`.
struct SquaredReluForwardArgs {
  int64_t rows = 0;
  int64_t ffn = 0;
  ConstTensor x;                       // [rows, ffn]
  const float* prob = nullptr;         // [rows], or null: 1
  Tensor out;                          // [rows, ffn]
  const int64_t* row_count = nullptr;  // see math/row_count.h
};
void SquaredReluForward(const SquaredReluForwardArgs& args,
                        device::Stream& stream);

// `d_x` may be `x` or `d_out`.
struct SquaredReluBackwardArgs {
  int64_t rows = 0;
  int64_t ffn = 0;
  ConstTensor x;                       // [rows, ffn]
  const float* prob = nullptr;         // [rows], or null: 1
  ConstTensor d_out;                   // [rows, ffn]
  Tensor d_x;                          // [rows, ffn]
  float* d_prob = nullptr;             // [rows], or null: not wanted
  const int64_t* row_count = nullptr;  // see math/row_count.h
};
void SquaredReluBackward(const SquaredReluBackwardArgs& args,
                         device::Stream& stream);

}  // namespace weft::ops

#endif  // WEFT_KERNELS_OPS_SQUARED_RELU_SQUARED_RELU_H_

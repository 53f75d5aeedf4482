// Root-mean-square norm of each head inside rows that hold several heads: the
// norm of queries and keys before they are rotated.
//
// A row is a token. Its heads lie side by side, and rows `stride` elements
// apart, so that queries and keys are normalised where they lie among the
// columns of qkv.
//
//   rstd = 1 / sqrt(mean(x^2) + eps)      y = x * rstd * weight
//
//   with t = dy * weight and xhat = x * rstd:
//   dx = rstd * (t - xhat * mean(t * xhat))      dweight = sum dy * xhat
//
// All heads share one weight. All tensors but dweight have one format.
#ifndef WEFT_KERNELS_OPS_HEAD_NORM_HEAD_NORM_H_
#define WEFT_KERNELS_OPS_HEAD_NORM_HEAD_NORM_H_

#include <cstdint>

#include "kernels/ops/stream.h"

namespace weft::ops {

// Requires: head_dim > 0, strides at least as long as a row.
struct HeadNormShape {
  int64_t tokens = 0;
  int64_t heads = 0;
  int64_t head_dim = 0;
  int64_t stride = 0;       // of qkv and its gradient
  int64_t kept_stride = 0;  // of x
  int64_t rstd_stride = 0;
};

// Normalises in place and keeps what backward needs.
struct HeadNormForwardArgs {
  HeadNormShape shape;
  float eps = 1e-5f;
  ConstTensor weight;     // [head_dim]
  Tensor qkv;             // [tokens, stride], read as x, written as y
  Tensor x;               // [tokens, kept_stride], written
  float* rstd = nullptr;  // [tokens, rstd_stride], written
};
void HeadNormForward(const HeadNormForwardArgs& args, device::Stream& stream);

// In place: dy becomes dx. Rows and heads are summed in fp64.
struct HeadNormBackwardArgs {
  HeadNormShape shape;
  ConstTensor weight;           // [head_dim]
  ConstTensor x;                // [tokens, kept_stride]
  const float* rstd = nullptr;  // [tokens, rstd_stride]
  Tensor d_qkv;                 // [tokens, stride], read as dy, written as dx
  // [head_dim]; zero-filled without tokens. Null: it is not computed.
  Tensor dweight;
  bool accumulate = false;  // dweight
};
void HeadNormBackward(const HeadNormBackwardArgs& args, device::Stream& stream);

}  // namespace weft::ops

#endif  // WEFT_KERNELS_OPS_HEAD_NORM_HEAD_NORM_H_

// Root-mean-square norm, group by group, of a gated row: the end of a Mamba-2
// mixer. The gate comes before the norm.
//
//   g = y * silu(z),   silu(z) = z * s,   s = 1 / (1 + exp(-z))
//   rstd = 1 / sqrt(mean over the group(g^2) + eps)     out = g * rstd * weight
//
//   with t = d_out * weight and ghat = g * rstd:
//   dg = rstd * (t - ghat * mean over the group(t * ghat))
//   dy = dg * silu(z)     dz = dg * y * s * (1 + z * (1 - s))
//   dweight = sum over rows(d_out * ghat)
//
// z and dz are columns of longer rows. All tensors of a call but dweight have
// one format.
#ifndef WEFT_KERNELS_OPS_GATED_NORM_GATED_NORM_H_
#define WEFT_KERNELS_OPS_GATED_NORM_GATED_NORM_H_

#include <cstdint>

#include "kernels/ops/stream.h"

namespace weft::ops {

// Requires: columns > 0, a multiple of groups; z_stride >= columns.
struct GatedNormShape {
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t groups = 0;
  int64_t z_stride = 0;  // elements between rows of z, and of dz

  constexpr int64_t group_columns() const { return columns / groups; }
};

struct GatedNormForwardArgs {
  GatedNormShape shape;
  float eps = 1e-5f;
  ConstTensor y;          // [rows, columns]
  ConstTensor z;          // [rows, z_stride]
  ConstTensor weight;     // [columns]
  Tensor out;             // [rows, columns]
  float* rstd = nullptr;  // [rows, groups], kept for backward
};
void GatedNormForward(const GatedNormForwardArgs& args, device::Stream& stream);

// `dy` may be `d_out`. Rows of dweight are summed in fp64.
struct GatedNormBackwardArgs {
  GatedNormShape shape;
  ConstTensor y;                // [rows, columns]
  ConstTensor z;                // [rows, z_stride]
  ConstTensor weight;           // [columns]
  const float* rstd = nullptr;  // [rows, groups]
  ConstTensor d_out;            // [rows, columns]
  Tensor dy;                    // [rows, columns]
  Tensor dz;                    // [rows, z_stride]
  // [columns]; zero-filled without rows. Null: it is not computed.
  Tensor dweight;
  bool accumulate = false;  // dweight
};
void GatedNormBackward(const GatedNormBackwardArgs& args,
                       device::Stream& stream);

}  // namespace weft::ops

#endif  // WEFT_KERNELS_OPS_GATED_NORM_GATED_NORM_H_

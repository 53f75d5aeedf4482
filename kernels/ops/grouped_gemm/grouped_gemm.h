// The linear layers of several experts over rows sorted by expert. Formats and
// sums are those of Gemm.
//
// Rows of expert e are offsets[e] .. offsets[e + 1]. An expert may have no row.
//
// On CUDA the offsets are read by the device when the product runs. Operands in
// bf16, with `in` and `out` multiples of 8 and at most 2,048 experts, go to the
// tensor cores when all tensors (and weight_stride) lie on 16-byte boundaries;
// a call with one that does not sums in another order.
#ifndef WEFT_KERNELS_OPS_GROUPED_GEMM_GROUPED_GEMM_H_
#define WEFT_KERNELS_OPS_GROUPED_GEMM_GROUPED_GEMM_H_

#include <cstdint>

#include "kernels/ops/stream.h"

namespace weft::ops {

// Requires: offsets[0] == 0 and offsets does not decrease.
struct GroupedShape {
  int64_t num_experts = 0;
  int64_t in = 0;
  int64_t out = 0;
  const int64_t* offsets = nullptr;  // [num_experts + 1]
  // Rows that the tensors hold: offsets[num_experts] or more. 0: as many as
  // offsets[num_experts], which the host must then be able to read at the call
  // (the CPU form reads no other).
  int64_t max_rows = 0;
  // Elements from one expert's weight (and its gradient) to the next's; 0
  // means out * in.
  int64_t weight_stride = 0;
};

// y = x W_e^T for the rows of each expert e.
struct GroupedForwardArgs {
  GroupedShape shape;
  ConstTensor x;       // [rows, in]
  ConstTensor weight;  // [num_experts, out, in]
  Tensor y;            // [rows, out]
};
void GroupedForward(const GroupedForwardArgs& args, device::Stream& stream);

// dx = dy W_e for the rows of each expert e.
struct GroupedDgradArgs {
  GroupedShape shape;
  ConstTensor dy;      // [rows, out]
  ConstTensor weight;  // [num_experts, out, in]
  Tensor dx;           // [rows, in]
};
void GroupedDgrad(const GroupedDgradArgs& args, device::Stream& stream);

// dW_e = dy_e^T x_e. The gradient of an expert without rows is zero: written
// as zeros, or left as it is with `accumulate`.
struct GroupedWgradArgs {
  GroupedShape shape;
  ConstTensor dy;  // [rows, out]
  ConstTensor x;   // [rows, in]
  Tensor dweight;  // [num_experts, out, in]
  bool accumulate = false;
};
void GroupedWgrad(const GroupedWgradArgs& args, device::Stream& stream);

}  // namespace weft::ops

#endif  // WEFT_KERNELS_OPS_GROUPED_GEMM_GROUPED_GEMM_H_

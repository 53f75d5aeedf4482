// Matrix products, row-major. Each operand has a format of its own; products
// are summed in fp32.
//
// On the CPU by oneDNN's sgemm, which (seen in 2.6)
// - asks OpenMP for threads: launch the process with OMP_NUM_THREADS=1;
// - gives the same bits for the same shape, from any thread or alignment, but
//   a row of C may change in the last place with the number of rows m;
// - chooses its kernels by processor: bits differ between kinds of processor;
// - takes packing buffers from malloc;
// - when adding to C, rounds several times for a large k (above 384, or 256
//   without AVX-512) or for a C of one row or column. Gemm does not: it holds
//   the product apart in 128 KiB of stack, then adds.
//
// Operands in bf16 are widened panel by panel (it has no product of them), in
// 384 KiB of stack in all; the sum then runs over panels of 256, ascending.
//
// On CUDA by cuBLASLt, for operands of one format; others by a kernel of our
// own in fp32. Operands that all begin on a 16-byte boundary give the same bits
// from anywhere; a call with one that does not may sum in another order.
// Products of bf16 are summed by the tensor cores, so the bits differ from
// those of the same numbers in fp32. What is added to a bf16 C is first held
// apart in workspace, which only the stream "compute" has enough of.
#ifndef WEFT_KERNELS_OPS_GEMM_GEMM_H_
#define WEFT_KERNELS_OPS_GEMM_GEMM_H_

#include <cstdint>

#include "kernels/ops/stream.h"

namespace weft::ops {

// C [m, n] = alpha * op(A) op(B) + (accumulate ? C : 0)
//
// op(A) is [m, k]: A itself, or the transpose of A [k, m]. op(B) is [k, n]: B
// itself, or the transpose of B [n, k]. With k == 0 and no `accumulate`, C is
// zero-filled.
//
// Requires: m, n, k >= 0; leading dimensions at least the row length.
struct GemmArgs {
  bool transpose_a = false;
  bool transpose_b = false;
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  float alpha = 1.0f;
  bool accumulate = false;
  ConstTensor a;
  int64_t lda = 0;  // elements between rows of A; 0: rows are dense
  ConstTensor b;
  int64_t ldb = 0;
  Tensor c;
  int64_t ldc = 0;
};
void Gemm(const GemmArgs& args, device::Stream& stream);

namespace internal {

// With what a leading dimension of 0 stands for.
inline GemmArgs WithLeadingDimensions(GemmArgs g) {
  if (g.lda == 0) g.lda = g.transpose_a ? g.m : g.k;
  if (g.ldb == 0) g.ldb = g.transpose_b ? g.k : g.n;
  if (g.ldc == 0) g.ldc = g.n;
  return g;
}

}  // namespace internal

// The three products of a linear layer y = x W^T.
struct LinearForwardArgs {
  int64_t rows = 0;
  int64_t in = 0;
  int64_t out = 0;
  ConstTensor x;       // [rows, in]
  ConstTensor weight;  // [out, in]
  Tensor y;            // [rows, out]
  bool accumulate = false;
};
void LinearForward(const LinearForwardArgs& args, device::Stream& stream);

// dx = dy W
struct LinearDgradArgs {
  int64_t rows = 0;
  int64_t in = 0;
  int64_t out = 0;
  ConstTensor dy;      // [rows, out]
  ConstTensor weight;  // [out, in]
  Tensor dx;           // [rows, in]
  bool accumulate = false;
};
void LinearDgrad(const LinearDgradArgs& args, device::Stream& stream);

// dW = dy^T x
struct LinearWgradArgs {
  int64_t rows = 0;
  int64_t in = 0;
  int64_t out = 0;
  ConstTensor dy;  // [rows, out]
  ConstTensor x;   // [rows, in]
  Tensor dweight;  // [out, in]; zero-filled when rows == 0
  bool accumulate = false;
};
void LinearWgrad(const LinearWgradArgs& args, device::Stream& stream);

}  // namespace weft::ops

#endif  // WEFT_KERNELS_OPS_GEMM_GEMM_H_

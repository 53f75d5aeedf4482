// The library call under Gemm, for ops that need many small products and no
// promise about how `beta` rounds.
#ifndef WEFT_KERNELS_OPS_GEMM_SGEMM_CPU_H_
#define WEFT_KERNELS_OPS_GEMM_SGEMM_CPU_H_

#include <cstdint>

namespace weft::ops::internal {

// C [m, n] = alpha * op(A) op(B) + beta * C, row-major.
// Requires: m, n, k > 0 (the library crashes on zero rows).
struct SgemmArgs {
  bool transpose_a;
  bool transpose_b;
  int64_t m;
  int64_t n;
  int64_t k;
  float alpha;
  const float* a;
  int64_t lda;
  const float* b;
  int64_t ldb;
  float beta;
  float* c;
  int64_t ldc;
};
void Sgemm(const SgemmArgs& args);

}  // namespace weft::ops::internal

#endif  // WEFT_KERNELS_OPS_GEMM_SGEMM_CPU_H_

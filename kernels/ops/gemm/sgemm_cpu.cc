#include "kernels/ops/gemm/sgemm_cpu.h"

#include <dnnl.h>

namespace weft::ops::internal {

void Sgemm(const SgemmArgs& g) {
  // It can only refuse bad leading dimensions, which callers never pass.
  (void)dnnl_sgemm(g.transpose_a ? 'T' : 'N', g.transpose_b ? 'T' : 'N', g.m,
                   g.n, g.k, g.alpha, g.a, g.lda, g.b, g.ldb, g.beta, g.c,
                   g.ldc);
}

}  // namespace weft::ops::internal

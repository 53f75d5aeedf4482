// Products by cuBLASLt. Its algorithm is chosen from sizes, formats and leading
// dimensions alone, once a thread; it never sums in an order that is not fixed,
// and fp32 operands are never rounded to TF32.
#ifndef WEFT_KERNELS_OPS_GEMM_BLASLT_CUDA_H_
#define WEFT_KERNELS_OPS_GEMM_BLASLT_CUDA_H_

#include <cstdint>

#include "kernels/ops/gemm/gemm.h"

namespace weft::ops::internal {

constexpr int64_t kBlasLtWorkspaceBytes = int64_t{32} << 20;

// Whether the library has products of these formats, and all three operands
// begin on a 16-byte boundary.
bool IsForBlasLt(const GemmArgs& g);

// C = alpha * op(A) op(B) + (accumulate ? C : 0), where the sum with C is not
// rounded in between. False, and nothing is launched, when the library has no
// algorithm for the sizes. Requires: IsForBlasLt; leading dimensions are given;
// m, n, k > 0; a thread calls it for streams of one device.
bool BlasLtGemm(const GemmArgs& g, void* workspace, device::Stream& stream);

}  // namespace weft::ops::internal

#endif  // WEFT_KERNELS_OPS_GEMM_BLASLT_CUDA_H_

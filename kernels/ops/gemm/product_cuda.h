// The kernels under Gemm and GroupedGemm on CUDA: products of every group of a
// ragged batch.
//
// The bits of a product depend on its sizes, formats and leading dimensions
// alone. Alpha times the product is rounded to the format of C, then added.
#ifndef WEFT_KERNELS_OPS_GEMM_PRODUCT_CUDA_H_
#define WEFT_KERNELS_OPS_GEMM_PRODUCT_CUDA_H_

#include <cstdint>

#include "kernels/ops/gemm/gemm.h"

namespace weft::ops::internal {

// What differs from group to group.
enum class Ragged : unsigned char {
  kNone = 0,  // there is one group
  kRows,      // the rows of A and C
  kDepth,     // the rows of A and B, which the product sums over
};

// C_g = alpha * op(A_g) op(B_g) + (accumulate ? C_g : 0) for every group g.
struct Product {
  // Requires: leading dimensions are given. kRows: A is not transposed, and m
  // is the most rows that A and C hold. kDepth: A is transposed, B is not, and
  // k is the most rows that A and B hold.
  GemmArgs gemm;
  Ragged ragged = Ragged::kNone;
  int64_t groups = 1;
  // [groups + 1], readable by the device: group g has rows offsets[g] ..
  // offsets[g + 1].
  const int64_t* offsets = nullptr;
  // Elements from one group's B (kRows) or C (kDepth) to the next's.
  int64_t stride = 0;
};

// Any formats, sizes and alignment, products in fp32, without tensor cores.
void SimtProduct(const Product& product, device::Stream& stream);

// Whether WgmmaProduct takes it: no size is 0, operands are bf16, rows of all
// matrices begin on 16-byte boundaries, and not both operands are transposed.
bool IsForWgmma(const Product& product);

// On Hopper's tensor cores, summed in fp32. Requires: IsForWgmma.
void WgmmaProduct(const Product& product, device::Stream& stream);

// C = C + `product`, which has the format and the leading dimension of C.
void AddProduct(const GemmArgs& g, const void* product, device::Stream& stream);

}  // namespace weft::ops::internal

#endif  // WEFT_KERNELS_OPS_GEMM_PRODUCT_CUDA_H_

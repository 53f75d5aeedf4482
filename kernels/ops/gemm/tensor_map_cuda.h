// Tensor maps: what bulk loads know of a tensor.
#ifndef WEFT_KERNELS_OPS_GEMM_TENSOR_MAP_CUDA_H_
#define WEFT_KERNELS_OPS_GEMM_TENSOR_MAP_CUDA_H_

#include <cuda.h>

#include <cstdint>

namespace weft::ops::internal {

// Row-major matrices of bf16, one after the other.
// Requires: `data` is aligned to 16 bytes, `leading` and `stride` are multiples
// of 8, and no size is 0.
struct TensorOfMatrices {
  const void* data;
  int64_t rows;
  int64_t columns;
  int64_t leading;  // elements from row to row
  int64_t count;
  int64_t stride;  // elements from matrix to matrix
  int box_rows;    // of the boxes loaded, at most 256; they are 64 wide
};

// With a swizzle of 128 bytes. Coordinates are (column, row, matrix). False
// when the driver refuses. Any thread.
bool MakeTensorMap(const TensorOfMatrices& tensor, CUtensorMap* map);

}  // namespace weft::ops::internal

#endif  // WEFT_KERNELS_OPS_GEMM_TENSOR_MAP_CUDA_H_

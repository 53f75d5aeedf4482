#include "kernels/ops/gemm/tensor_map_cuda.h"

#include <cuda_runtime_api.h>

namespace weft::ops::internal {
namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

// Found at run time, so that a binary starts where there is no driver.
Encode FindEncode() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult result;
  if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function,
                                       12000, cudaEnableDefault,
                                       &result) != cudaSuccess ||
      result != cudaDriverEntryPointSuccess) {
    return nullptr;
  }
  return reinterpret_cast<Encode>(function);
}

}  // namespace

bool MakeTensorMap(const TensorOfMatrices& tensor, CUtensorMap* map) {
  static const Encode encode = FindEncode();
  if (encode == nullptr) return false;
  const cuuint64_t sizes[3] = {static_cast<cuuint64_t>(tensor.columns),
                               static_cast<cuuint64_t>(tensor.rows),
                               static_cast<cuuint64_t>(tensor.count)};
  const cuuint64_t strides[2] = {static_cast<cuuint64_t>(tensor.leading * 2),
                                 static_cast<cuuint64_t>(tensor.stride * 2)};
  const cuuint32_t box[3] = {64, static_cast<cuuint32_t>(tensor.box_rows), 1};
  const cuuint32_t steps[3] = {1, 1, 1};
  return encode(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3,
                const_cast<void*>(tensor.data), sizes, strides, box, steps,
                CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

}  // namespace weft::ops::internal

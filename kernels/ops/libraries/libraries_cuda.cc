#include <cublasLt.h>
#include <cudnn.h>

#include "kernels/ops/libraries/libraries.h"

namespace weft::ops {

LibraryVersion CublasVersion() {
  const auto number = static_cast<int64_t>(cublasLtGetVersion());
  return {"cuBLAS", VersionOf(number, 10000, 100), {13, 0, 0}};
}

LibraryVersion CudnnVersion() {
  const auto number = static_cast<int64_t>(cudnnGetVersion());
  return {"cuDNN", VersionOf(number, 10000, 100), {9, 0, 0}};
}

}  // namespace weft::ops

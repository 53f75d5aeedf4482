#include "kernels/comm/cuda/staging.h"

#include <cuda_runtime_api.h>

#include "base/status_macros.h"

namespace weft::comm::cuda {

absl::StatusOr<std::byte*> Staging::Get(int64_t bytes) {
  if (buffer_ == nullptr || buffer_->bytes() < bytes) {
    buffer_.reset();  // cudaFree() waits for the device
    ASSIGN_OR_RETURN(
        buffer_, device_->Allocate(bytes, device::MemoryCategory::kStaging));
  }
  return buffer_->data();
}

bool IsDeviceMemory(const void* pointer) {
  cudaPointerAttributes attributes;
  if (cudaPointerGetAttributes(&attributes, pointer) != cudaSuccess) {
    (void)cudaGetLastError();
    return false;
  }
  return attributes.type == cudaMemoryTypeDevice;
}

}  // namespace weft::comm::cuda

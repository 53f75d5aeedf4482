#include "kernels/comm/cuda/testing/test_device.h"

#include <cuda_runtime_api.h>

#include <cstdlib>

#include "kernels/device/cuda/cuda_device.h"

namespace weft::comm::cuda {

int NumGpus() {
  // Before the first call of CUDA: ranks that share a GPU wait for each other
  // there. So a stream may not stand behind another rank's in one queue, nor
  // loading a kernel wait for all that runs.
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
  ::setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

int GpuOfRank(int rank) { return rank % std::max(1, NumGpus()); }

absl::StatusOr<std::unique_ptr<device::Device>> CreateTestDevice(int ordinal) {
  device::CudaDeviceOptions options;
  options.ordinal = ordinal;
  options.compute_workspace_bytes = 1 << 16;
  options.workspace_bytes = 1 << 16;
  return device::CreateCudaDevice(options);
}

}  // namespace weft::comm::cuda

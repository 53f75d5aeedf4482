#include "kernels/comm/cuda/testing/cuda_world.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "kernels/comm/cuda/testing/staged_communicator.h"
#include "kernels/device/cuda/cuda_device.h"

namespace weft::comm::cuda {

int NumGpus() {
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

absl::Status CudaTestWorld::MakeDevices(int ranks) {
  for (int rank = 0; rank < ranks; ++rank) {
    ASSIGN_OR_RETURN(devices_.emplace_back(),
                     CreateTestDevice(GpuOfRank(rank)));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Communicator>> CudaTestWorld::Stage(
    absl::StatusOr<std::unique_ptr<Communicator>> inner, int rank) {
  RETURN_IF_ERROR(inner.status());
  RETURN_IF_ERROR((*inner)->Reserve(kStagedBytes));
  ASSIGN_OR_RETURN(std::shared_ptr<device::Buffer> memory,
                   devices_[rank]->Allocate(2 * kStagedBytes,
                                            device::MemoryCategory::kArena));
  return std::make_unique<StagedCommunicator>(*std::move(inner),
                                              std::move(memory));
}

}  // namespace weft::comm::cuda

#include "kernels/comm/cuda/testing/cuda_world.h"

#include <utility>

#include "base/status_macros.h"
#include "kernels/comm/cuda/testing/staged_communicator.h"
#include "kernels/comm/cuda/testing/test_device.h"

namespace weft::comm::cuda {

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
  return StagedCommunicator::Create(*std::move(inner), *devices_[rank]);
}

}  // namespace weft::comm::cuda

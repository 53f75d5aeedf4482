// What tests of CUDA backends need to make ranks.
#ifndef WEFT_KERNELS_COMM_CUDA_TESTING_CUDA_WORLD_H_
#define WEFT_KERNELS_COMM_CUDA_TESTING_CUDA_WORLD_H_

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/comm/communicator.h"
#include "kernels/comm/conformance.h"
#include "kernels/device/device.h"

namespace weft::comm::cuda {

// Ranks as threads, each with a device of its own.
class CudaTestWorld : public TestWorld {
 public:
  device::Device* device(int rank) override { return devices_[rank].get(); }

 protected:
  absl::Status MakeDevices(int ranks);

  // Takes memory of the host; staging for it is reserved.
  absl::StatusOr<std::unique_ptr<Communicator>> Stage(
      absl::StatusOr<std::unique_ptr<Communicator>> inner, int rank);

  std::vector<std::unique_ptr<device::Device>> devices_;
};

}  // namespace weft::comm::cuda

#endif  // WEFT_KERNELS_COMM_CUDA_TESTING_CUDA_WORLD_H_

// GPUs for tests and benchmarks.
#ifndef WEFT_KERNELS_COMM_CUDA_TESTING_TEST_DEVICE_H_
#define WEFT_KERNELS_COMM_CUDA_TESTING_TEST_DEVICE_H_

#include <algorithm>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/device/device.h"

namespace weft::comm::cuda {

// GPUs that this process sees; 0 without a driver.
int NumGpus();

// The GPU of a rank: ranks take turns.
int GpuOfRank(int rank);

// A test on a GPU that hangs should not take long.
inline absl::Duration Capped(absl::Duration deadline) {
  return std::min(deadline, absl::Seconds(8));
}

// A device for tests: it takes little memory.
absl::StatusOr<std::unique_ptr<device::Device>> CreateTestDevice(int ordinal);

}  // namespace weft::comm::cuda

#endif  // WEFT_KERNELS_COMM_CUDA_TESTING_TEST_DEVICE_H_

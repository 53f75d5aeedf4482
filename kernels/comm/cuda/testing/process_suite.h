// What backends for CUDA streams must do among processes, as a suite of tests.
// Ranks may share a GPU.
//
//   INSTANTIATE_TEST_SUITE_P(Nccl, CudaProcesses,
//                            testing::Values(ProcessBackend{&Create}));
#ifndef WEFT_KERNELS_COMM_CUDA_TESTING_PROCESS_SUITE_H_
#define WEFT_KERNELS_COMM_CUDA_TESTING_PROCESS_SUITE_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "kernels/comm/cancellation.h"
#include "kernels/comm/communicator.h"
#include "kernels/device/device.h"

namespace weft::comm::cuda {

// A transport with one group: that of all ranks.
class ProcessTransport {
 public:
  virtual ~ProcessTransport() = default;
  virtual std::string address() const = 0;
  virtual absl::Status Connect(const std::vector<std::string>& addresses) = 0;
  virtual absl::StatusOr<std::unique_ptr<Communicator>> CreateCommunicator(
      const std::vector<int>& all) = 0;
};

struct ProcessTransportOptions {
  int rank = 0;
  int world = 1;
  absl::Duration deadline;
  Cancellation* cancellation = nullptr;
  device::Device* device = nullptr;
  int ordinal = 0;
};

struct ProcessBackend {
  // Called in the rank's own process.
  std::function<absl::StatusOr<std::unique_ptr<ProcessTransport>>(
      const ProcessTransportOptions&)>
      create;
};

class CudaProcesses : public testing::TestWithParam<ProcessBackend> {};

}  // namespace weft::comm::cuda

#endif  // WEFT_KERNELS_COMM_CUDA_TESTING_PROCESS_SUITE_H_

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
#include <utility>
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

// NcclTransport or NvlinkTransport.
template <typename Inner>
class ProcessTransportOf : public ProcessTransport {
 public:
  explicit ProcessTransportOf(std::unique_ptr<Inner> inner)
      : inner_(std::move(inner)) {}

  std::string address() const override { return inner_->address(); }
  absl::Status Connect(const std::vector<std::string>& addresses) override {
    return inner_->Connect(addresses);
  }
  absl::StatusOr<std::unique_ptr<Communicator>> CreateCommunicator(
      const std::vector<int>& all) override {
    return inner_->CreateCommunicator("ep", 1, all);
  }

 private:
  const std::unique_ptr<Inner> inner_;
};

// What the options of both have.
template <typename Options>
Options TransportOptionsOf(const ProcessTransportOptions& test) {
  Options options;
  options.name = "ep";
  options.rank = test.rank;
  options.world = test.world;
  options.deadline = test.deadline;
  options.cancellation = test.cancellation;
  options.device = test.device;
  options.ordinal = test.ordinal;
  return options;
}

struct ProcessBackend {
  // Called in the rank's own process.
  std::function<absl::StatusOr<std::unique_ptr<ProcessTransport>>(
      const ProcessTransportOptions&)>
      create;
};

class CudaProcesses : public testing::TestWithParam<ProcessBackend> {};

}  // namespace weft::comm::cuda

#endif  // WEFT_KERNELS_COMM_CUDA_TESTING_PROCESS_SUITE_H_

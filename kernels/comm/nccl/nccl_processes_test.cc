// NCCL among processes. Where there are fewer GPUs than ranks, ranks share one:
// NCCL then takes them for ranks of different hosts.
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "gtest/gtest.h"
#include "kernels/comm/cuda/testing/process_suite.h"
#include "kernels/comm/cuda/testing/test_device.h"
#include "kernels/comm/nccl/nccl.h"

namespace weft::comm::cuda {
namespace {

class Transport : public ProcessTransport {
 public:
  explicit Transport(std::unique_ptr<NcclTransport> nccl)
      : nccl_(std::move(nccl)) {}

  std::string address() const override { return nccl_->address(); }
  absl::Status Connect(const std::vector<std::string>& addresses) override {
    return nccl_->Connect(addresses);
  }
  absl::StatusOr<std::unique_ptr<Communicator>> CreateCommunicator(
      const std::vector<int>& all) override {
    return nccl_->CreateCommunicator("ep", 1, all);
  }

 private:
  const std::unique_ptr<NcclTransport> nccl_;
};

absl::StatusOr<std::unique_ptr<ProcessTransport>> Create(
    const ProcessTransportOptions& test) {
  if (NumGpus() < test.world) {
    ::setenv("NCCL_HOSTID", absl::StrCat("rank", test.rank).c_str(), 1);
    ::setenv("NCCL_SOCKET_IFNAME", "lo", 1);
  }
  NcclTransportOptions options;
  options.name = "ep";
  options.rank = test.rank;
  options.world = test.world;
  options.deadline = test.deadline;
  options.cancellation = test.cancellation;
  options.device = test.device;
  options.ordinal = test.ordinal;
  if (test.rank == 0) options.rooted_groups = {1};
  ASSIGN_OR_RETURN(auto nccl, NcclTransport::Create(options));
  return std::make_unique<Transport>(std::move(nccl));
}

INSTANTIATE_TEST_SUITE_P(Nccl, CudaProcesses,
                         testing::Values(ProcessBackend{&Create}));

}  // namespace
}  // namespace weft::comm::cuda

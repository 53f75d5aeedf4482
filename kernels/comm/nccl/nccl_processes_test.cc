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

absl::StatusOr<std::unique_ptr<ProcessTransport>> Create(
    const ProcessTransportOptions& test) {
  if (NumGpus() < test.world) {
    ::setenv("NCCL_HOSTID", absl::StrCat("rank", test.rank).c_str(), 1);
    ::setenv("NCCL_SOCKET_IFNAME", "lo", 1);
  }
  auto options = TransportOptionsOf<NcclTransportOptions>(test);
  if (test.rank == 0) options.rooted_groups = {1};
  ASSIGN_OR_RETURN(auto nccl, NcclTransport::Create(options));
  return std::make_unique<ProcessTransportOf<NcclTransport>>(std::move(nccl));
}

INSTANTIATE_TEST_SUITE_P(Nccl, CudaProcesses,
                         testing::Values(ProcessBackend{&Create}));

}  // namespace
}  // namespace weft::comm::cuda

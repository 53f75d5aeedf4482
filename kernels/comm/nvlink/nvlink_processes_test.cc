// Copies between GPUs among processes, which map memory by CUDA IPC.
#include <cuda_runtime_api.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "gtest/gtest.h"
#include "kernels/comm/cuda/testing/process_suite.h"
#include "kernels/comm/cuda/testing/test_device.h"
#include "kernels/comm/nvlink/nvlink.h"
#include "kernels/comm/processes.h"
#include "kernels/device/device.h"

namespace weft::comm::cuda {
namespace {

absl::StatusOr<std::unique_ptr<ProcessTransport>> Create(
    const ProcessTransportOptions& test) {
  auto options = TransportOptionsOf<NvlinkTransportOptions>(test);
  ASSIGN_OR_RETURN(auto nvlink, NvlinkTransport::Create(options));
  return std::make_unique<ProcessTransportOf<NvlinkTransport>>(
      std::move(nvlink));
}

INSTANTIATE_TEST_SUITE_P(Nvlink, CudaProcesses,
                         testing::Values(ProcessBackend{&Create}));

// What a rank gathers into `all` from buffers of a few bytes, one after the
// other. The driver keeps such in one block of memory.
struct SmallGathers {
  static constexpr int kBuffers = 5;
  static constexpr int64_t kBytes = 1000;
  Communicator* comm = nullptr;
  const std::vector<std::unique_ptr<device::Buffer>>* sent = nullptr;
  device::Buffer* all = nullptr;  // [kBuffers, 2, kBytes]

  static absl::Status Run(void* arg, device::Stream& stream) {
    const auto& self = *static_cast<const SmallGathers*>(arg);
    for (int i = 0; i < kBuffers; ++i) {
      CollectiveTag tag = {"gather", i, 0, 0};
      RETURN_IF_ERROR(self.comm->AllGather((*self.sent)[i]->data(),
                                           self.all->data() + i * 2 * kBytes,
                                           kBytes, stream, tag));
    }
    return absl::OkStatus();
  }
};

absl::Status CheckGathered(const device::Buffer& all) {
  std::vector<unsigned char> got(all.bytes());
  if (cudaMemcpy(got.data(), all.data(), all.bytes(), cudaMemcpyDeviceToHost) !=
      cudaSuccess) {
    return absl::InternalError("cannot read the result");
  }
  for (size_t at = 0; at < got.size(); ++at) {
    const size_t slice = at / SmallGathers::kBytes;  // buffer * 2 + rank
    const int expected = static_cast<int>(slice / 2 * 16 + slice % 2 + 1);
    if (got[at] == expected) continue;
    return absl::InternalError(
        absl::StrCat("byte ", at, " is ", int{got[at]}, ", not ", expected));
  }
  return absl::OkStatus();
}

TEST(NvlinkProcessesTest, SmallBuffersAreMappedEachToItsPlace) {
  const auto results = RunProcesses(
      2, absl::Seconds(25), [](int rank, Mailbox& mailbox) -> absl::Status {
        ASSIGN_OR_RETURN(auto device, CreateTestDevice(GpuOfRank(rank)));
        ASSIGN_OR_RETURN(auto stream, device->CreateStream("ep"));
        ASSIGN_OR_RETURN(auto transport,
                         Create({rank, 2, absl::Seconds(8), nullptr,
                                 device.get(), GpuOfRank(rank)}));
        RETURN_IF_ERROR(
            transport->Connect(mailbox.Exchange(transport->address())));
        ASSIGN_OR_RETURN(auto comm, transport->CreateCommunicator({0, 1}));
        std::vector<std::unique_ptr<device::Buffer>> sent;
        std::vector<const device::Buffer*> registered;
        for (int i = 0; i < SmallGathers::kBuffers; ++i) {
          ASSIGN_OR_RETURN(sent.emplace_back(),
                           device->Allocate(SmallGathers::kBytes,
                                            device::MemoryCategory::kArena));
          (void)cudaMemset(sent.back()->data(), i * 16 + rank + 1,
                           SmallGathers::kBytes);
          registered.push_back(sent.back().get());
        }
        (void)cudaDeviceSynchronize();
        RETURN_IF_ERROR(comm->RegisterMemory(registered));
        ASSIGN_OR_RETURN(
            auto all,
            device->Allocate(SmallGathers::kBuffers * 2 * SmallGathers::kBytes,
                             device::MemoryCategory::kArena));
        SmallGathers gathers;
        gathers.comm = comm.get();
        gathers.sent = &sent;
        gathers.all = all.get();
        stream->Launch(&SmallGathers::Run, &gathers);
        absl::Status status = stream->Synchronize();
        if (status.ok()) status = CheckGathered(*all);
        mailbox.Exchange("done");
        return status;
      });
  for (const ProcessResult& result : results) {
    EXPECT_TRUE(result.passed) << result.message;
  }
}

}  // namespace
}  // namespace weft::comm::cuda

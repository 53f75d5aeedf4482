#include <cuda_runtime_api.h>

#include <cstdlib>
#include <iostream>
#include <memory>

#include "gmock/gmock.h"
#include "kernels/device/cuda/cuda_device.h"
#include "kernels/device/device.h"
#include "kernels/ops/testing/testing.h"

namespace {

void* AllocatePinned(size_t bytes) {
  void* data = nullptr;
  if (cudaHostAlloc(&data, bytes, cudaHostAllocMapped) != cudaSuccess) {
    std::abort();
  }
  return data;
}

void ReleasePinned(void* data) { (void)cudaFreeHost(data); }

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  // A launch has run when it returns, as the tests expect.
  setenv("CUDA_LAUNCH_BLOCKING", "1", /*overwrite=*/1);
  const auto device = weft::device::CreateCudaDevice({});
  if (!device.ok()) {
    std::cerr << device.status() << std::endl;
    return 1;
  }
  const auto stream = (*device)->CreateStream("compute");
  if (!stream.ok()) {
    std::cerr << stream.status() << std::endl;
    return 1;
  }
  weft::ops::testing::UseGpu(**stream, {&AllocatePinned, &ReleasePinned});
  const int failed = RUN_ALL_TESTS();
  const absl::Status status = (*stream)->Synchronize();
  if (!status.ok()) std::cerr << status << std::endl;
  return status.ok() ? failed : 1;
}

#include <cuda_runtime_api.h>

#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "kernels/device/cuda/cuda_device.h"
#include "kernels/device/device.h"
#include "kernels/ops/testing/testing.h"

namespace {

// Before each piece of memory, which it keeps aligned: its size class.
constexpr size_t kHeader = 64;
constexpr int kSmall = 20;  // pieces of up to 2^20 bytes
constexpr size_t kSlab = size_t{1} << 26;

std::vector<char*> released[kSmall + 1];  // by size class

char* Pin(size_t bytes) {
  void* data = nullptr;
  if (cudaHostAlloc(&data, bytes, cudaHostAllocMapped) != cudaSuccess) {
    std::abort();
  }
  return static_cast<char*>(data);
}

// A piece of a slab: to pin memory takes long, and tests need many vectors.
char* TakeSmall(int size_class) {
  static char* slab = nullptr;
  static size_t left = 0;
  std::vector<char*>& list = released[size_class];
  if (!list.empty()) {
    char* piece = list.back();
    list.pop_back();
    return piece;
  }
  const size_t bytes = size_t{1} << size_class;
  if (left < bytes) {
    slab = Pin(kSlab);
    left = kSlab;
  }
  left -= bytes;
  return slab + left;
}

void* AllocatePinned(size_t bytes) {
  int size_class = 7;
  while (size_t{1} << size_class < bytes + kHeader) ++size_class;
  char* piece =
      size_class <= kSmall ? TakeSmall(size_class) : Pin(bytes + kHeader);
  std::memcpy(piece, &size_class, sizeof(size_class));
  return piece + kHeader;
}

void ReleasePinned(void* data) {
  char* piece = static_cast<char*>(data) - kHeader;
  int size_class = 0;
  std::memcpy(&size_class, piece, sizeof(size_class));
  if (size_class <= kSmall) {
    released[size_class].push_back(piece);
  } else {
    (void)cudaFreeHost(piece);
  }
}

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

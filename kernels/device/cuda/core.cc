#include "kernels/device/cuda/core.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace weft::device::cuda {
namespace {

enum class Memory : uint8_t { kDevice, kPinned };

class CudaBuffer : public Buffer {
 public:
  CudaBuffer(std::shared_ptr<Core> core, std::byte* data, int64_t bytes,
             Memory memory, MemoryCategory category)
      : core_(std::move(core)),
        data_(data),
        bytes_(bytes),
        memory_(memory),
        category_(category) {}

  ~CudaBuffer() override {
    if (memory_ == Memory::kPinned) {
      (void)cudaFreeHost(data_);
      return;
    }
    (void)cudaFree(data_);
    core_->accounts.Give(bytes_, category_);
  }

  std::byte* data() const override { return data_; }
  int64_t bytes() const override { return bytes_; }

 private:
  const std::shared_ptr<Core> core_;
  std::byte* const data_;
  const int64_t bytes_;
  const Memory memory_;
  const MemoryCategory category_;
};

absl::Status CheckSize(int64_t bytes) {
  if (bytes >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a buffer of ", bytes, " bytes was asked for"));
}

// A buffer of no bytes has an address, too.
size_t SizeToAsk(int64_t bytes) {
  return static_cast<size_t>(std::max<int64_t>(bytes, 1));
}

absl::StatusOr<std::byte*> MapZeroed(int64_t bytes) {
  void* data = nullptr;
  RETURN_IF_ERROR(ToStatus(cudaMalloc(&data, SizeToAsk(bytes)),
                           absl::StrCat("allocating ", bytes, " bytes")));
  cudaError_t error = cudaMemset(data, 0, SizeToAsk(bytes));
  if (error == cudaSuccess) error = cudaDeviceSynchronize();
  if (error == cudaSuccess) return static_cast<std::byte*>(data);
  (void)cudaFree(data);
  return ToStatus(error, absl::StrCat("zeroing ", bytes, " bytes"));
}

}  // namespace

absl::Status ToStatus(cudaError_t error, absl::string_view what) {
  if (error == cudaSuccess) return absl::OkStatus();
  const std::string message =
      absl::StrCat("CUDA: ", what, ": ", cudaGetErrorName(error), ": ",
                   cudaGetErrorString(error));
  (void)cudaGetLastError();  // so that no later call is blamed for it
  return error == cudaErrorMemoryAllocation
             ? absl::ResourceExhaustedError(message)
             : absl::InternalError(message);
}

Core::~Core() {
  if (origin != nullptr) (void)cudaEventDestroy(origin);
}

absl::Status Core::Use() const {
  return ToStatus(cudaSetDevice(ordinal),
                  absl::StrCat("using device ", ordinal));
}

absl::StatusOr<std::unique_ptr<Buffer>> AllocateDevice(
    std::shared_ptr<Core> core, int64_t bytes, MemoryCategory category) {
  RETURN_IF_ERROR(CheckSize(bytes));
  RETURN_IF_ERROR(core->Use());
  RETURN_IF_ERROR(core->accounts.Take(bytes, category));
  absl::StatusOr<std::byte*> data = MapZeroed(bytes);
  if (!data.ok()) {
    core->accounts.Give(bytes, category);
    return data.status();
  }
  core->counters.AddAllocation();
  return std::make_unique<CudaBuffer>(std::move(core), *data, bytes,
                                      Memory::kDevice, category);
}

absl::StatusOr<std::unique_ptr<Buffer>> AllocatePinned(
    std::shared_ptr<Core> core, int64_t bytes) {
  RETURN_IF_ERROR(CheckSize(bytes));
  RETURN_IF_ERROR(core->Use());
  void* data = nullptr;
  RETURN_IF_ERROR(
      ToStatus(cudaHostAlloc(&data, SizeToAsk(bytes),
                             cudaHostAllocPortable | cudaHostAllocMapped),
               absl::StrCat("allocating ", bytes, " bytes of pinned memory")));
  std::memset(data, 0, SizeToAsk(bytes));
  core->counters.AddAllocation();
  return std::make_unique<CudaBuffer>(
      std::move(core), static_cast<std::byte*>(data), bytes, Memory::kPinned,
      MemoryCategory::kStaging);
}

}  // namespace weft::device::cuda

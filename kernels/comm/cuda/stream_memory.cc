#include "kernels/comm/cuda/stream_memory.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/device/cuda/core.h"

namespace weft::comm::cuda {
namespace {

// What the driver takes at once.
constexpr size_t kMaxBatch = 256;

using BatchMemOp = CUresult (*)(CUstream, unsigned, CUstreamBatchMemOpParams*,
                                unsigned);

struct Driver {
  absl::Status status;
  BatchMemOp batch = nullptr;
};

absl::Status Find(const char* name, void** entry) {
  // The signature is that of this version of the driver's interface.
  constexpr unsigned kVersion = 12000;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  RETURN_IF_ERROR(device::cuda::ToStatus(
      cudaGetDriverEntryPointByVersion(name, entry, kVersion, cudaEnableDefault,
                                       &found),
      absl::StrCat("looking for ", name)));
  if (found == cudaDriverEntryPointSuccess && *entry != nullptr) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat("the driver has no ", name, " of version ", kVersion));
}

// Asked of the driver itself, so that nothing links its library, which hosts
// without a GPU do not have.
const Driver& TheDriver() {
  static const Driver* const driver = [] {
    auto* made = new Driver;
    void* entry = nullptr;
    made->status = Find("cuStreamBatchMemOp", &entry);
    made->batch = reinterpret_cast<BatchMemOp>(entry);
    return made;
  }();
  return *driver;
}

}  // namespace

void StreamMemoryOps::Write(uint32_t value, uint32_t* address) {
  CUstreamBatchMemOpParams op = {};
  op.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  op.writeValue.address = reinterpret_cast<CUdeviceptr>(address);
  op.writeValue.value = value;
  op.writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
  ops_.push_back(op);
}

void StreamMemoryOps::WaitFor(uint32_t value, uint32_t* address) {
  CUstreamBatchMemOpParams op = {};
  op.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  op.waitValue.address = reinterpret_cast<CUdeviceptr>(address);
  op.waitValue.value = value;
  op.waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
  ops_.push_back(op);
}

absl::Status StreamMemoryOps::Enqueue(cudaStream_t stream) {
  const Driver& driver = TheDriver();
  RETURN_IF_ERROR(driver.status);
  CUresult result = CUDA_SUCCESS;
  for (size_t at = 0; at < ops_.size() && result == CUDA_SUCCESS;
       at += kMaxBatch) {
    const size_t count = std::min(kMaxBatch, ops_.size() - at);
    result = driver.batch(stream, static_cast<unsigned>(count), &ops_[at], 0);
  }
  ops_.clear();
  if (result == CUDA_SUCCESS) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(
      "CUDA: writing and awaiting values on a stream: error ", result));
}

}  // namespace weft::comm::cuda

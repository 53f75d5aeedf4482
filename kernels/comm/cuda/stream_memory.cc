#include "kernels/comm/cuda/stream_memory.h"

#include <cuda.h>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/device/cuda/core.h"

namespace weft::comm::cuda {
namespace {

using MemoryOp = CUresult (*)(CUstream, CUdeviceptr, cuuint32_t, unsigned);

struct MemoryOps {
  absl::Status status;
  MemoryOp write = nullptr;
  MemoryOp wait = nullptr;
};

absl::Status Find(const char* name, MemoryOp* op) {
  // The signatures are those of this version of the driver's interface.
  constexpr unsigned kVersion = 12000;
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  RETURN_IF_ERROR(device::cuda::ToStatus(
      cudaGetDriverEntryPointByVersion(name, &entry, kVersion,
                                       cudaEnableDefault, &found),
      absl::StrCat("looking for ", name)));
  if (found != cudaDriverEntryPointSuccess || entry == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("the driver has no ", name, " of version ", kVersion));
  }
  *op = reinterpret_cast<MemoryOp>(entry);
  return absl::OkStatus();
}

// Asked of the driver itself, so that nothing links its library, which hosts
// without a GPU do not have.
const MemoryOps& Ops() {
  static const MemoryOps* const ops = [] {
    auto* found = new MemoryOps;
    found->status = Find("cuStreamWriteValue32", &found->write);
    found->status.Update(Find("cuStreamWaitValue32", &found->wait));
    return found;
  }();
  return *ops;
}

absl::Status Enqueue(MemoryOp op, uint32_t value, uint32_t* address,
                     unsigned flags, cudaStream_t stream, const char* what) {
  const CUresult result =
      op(stream, reinterpret_cast<CUdeviceptr>(address), value, flags);
  if (result == CUDA_SUCCESS) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("CUDA: ", what, ": error ", result));
}

}  // namespace

absl::Status WriteValue(uint32_t value, uint32_t* address,
                        cudaStream_t stream) {
  RETURN_IF_ERROR(Ops().status);
  return Enqueue(Ops().write, value, address, CU_STREAM_WRITE_VALUE_DEFAULT,
                 stream, "writing a value from a stream");
}

absl::Status WaitForValue(uint32_t value, uint32_t* address,
                          cudaStream_t stream) {
  RETURN_IF_ERROR(Ops().status);
  return Enqueue(Ops().wait, value, address, CU_STREAM_WAIT_VALUE_GEQ, stream,
                 "waiting for a value on a stream");
}

}  // namespace weft::comm::cuda

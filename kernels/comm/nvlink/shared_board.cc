#include "kernels/comm/nvlink/shared_board.h"

#include <cuda_runtime_api.h>

#include <utility>

#include "absl/memory/memory.h"
#include "base/status_macros.h"
#include "kernels/device/cuda/core.h"

namespace weft::comm::nvlink {

using device::cuda::ToStatus;

absl::StatusOr<std::shared_ptr<SharedBoard>> SharedBoard::Create() {
  ASSIGN_OR_RETURN(auto region, SharedRegion::Create(sizeof(Board)));
  return Pin(std::move(region));
}

absl::StatusOr<std::shared_ptr<SharedBoard>> SharedBoard::Open(
    const std::string& place) {
  ASSIGN_OR_RETURN(auto region, SharedRegion::Open(place, sizeof(Board)));
  return Pin(std::move(region));
}

absl::StatusOr<std::shared_ptr<SharedBoard>> SharedBoard::Pin(
    std::unique_ptr<SharedRegion> region) {
  std::shared_ptr<SharedBoard> board =
      absl::WrapUnique(new SharedBoard(std::move(region)));
  RETURN_IF_ERROR(ToStatus(
      cudaHostRegister(board->host(), sizeof(Board),
                       cudaHostRegisterPortable | cudaHostRegisterMapped),
      "pinning shared memory"));
  void* device = nullptr;
  const absl::Status mapped =
      ToStatus(cudaHostGetDevicePointer(&device, board->host(), 0),
               "asking for the address of shared memory");
  if (!mapped.ok()) {
    (void)cudaHostUnregister(board->host());
    return mapped;
  }
  board->device_ = static_cast<Board*>(device);
  return board;
}

SharedBoard::~SharedBoard() {
  if (device_ != nullptr) (void)cudaHostUnregister(host());
}

}  // namespace weft::comm::nvlink

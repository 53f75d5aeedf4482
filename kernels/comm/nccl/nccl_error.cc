#include "kernels/comm/nccl/nccl_error.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace weft::comm::nccl {

absl::Status ToStatus(ncclResult_t result, absl::string_view what,
                      ncclComm_t comm) {
  if (result == ncclSuccess || result == ncclInProgress) {
    return absl::OkStatus();
  }
  const char* const words = ncclGetLastError(comm);
  const std::string message =
      absl::StrCat("NCCL: ", what, ": ", ncclGetErrorString(result), ": ",
                   words == nullptr ? "" : words);
  return result == ncclRemoteError || result == ncclSystemError
             ? absl::UnavailableError(message)
             : absl::InternalError(message);
}

}  // namespace weft::comm::nccl

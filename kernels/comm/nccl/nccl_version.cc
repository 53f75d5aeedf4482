#include "kernels/comm/nccl/nccl_version.h"

#include <nccl.h>

#include "base/status_macros.h"
#include "kernels/comm/nccl/nccl_error.h"

namespace weft::comm {

absl::StatusOr<LibraryVersion> NcclVersion() {
  int number = 0;
  RETURN_IF_ERROR(nccl::ToStatus(ncclGetVersion(&number),
                                 "asking for the version", nullptr));
  return LibraryVersion{"NCCL", VersionOf(number, 10000, 100), {2, 27, 0}};
}

}  // namespace weft::comm

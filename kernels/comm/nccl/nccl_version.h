// The version of NCCL that is linked into this process.
#ifndef WEFT_KERNELS_COMM_NCCL_NCCL_VERSION_H_
#define WEFT_KERNELS_COMM_NCCL_NCCL_VERSION_H_

#include "absl/status/statusor.h"
#include "base/library_version.h"

namespace weft::comm {

// NCCL's error.
absl::StatusOr<LibraryVersion> NcclVersion();

}  // namespace weft::comm

#endif  // WEFT_KERNELS_COMM_NCCL_NCCL_VERSION_H_

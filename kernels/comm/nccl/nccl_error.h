// Results of NCCL as statuses.
#ifndef WEFT_KERNELS_COMM_NCCL_NCCL_ERROR_H_
#define WEFT_KERNELS_COMM_NCCL_NCCL_ERROR_H_

#include <nccl.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace weft::comm::nccl {

// OK for ncclSuccess and ncclInProgress; else "NCCL: <what>: <result>: <NCCL's
// own words>". UNAVAILABLE where a peer or the network failed, else INTERNAL.
// `comm` may be null.
absl::Status ToStatus(ncclResult_t result, absl::string_view what,
                      ncclComm_t comm);

}  // namespace weft::comm::nccl

#endif  // WEFT_KERNELS_COMM_NCCL_NCCL_ERROR_H_

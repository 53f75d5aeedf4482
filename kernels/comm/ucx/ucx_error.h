// The one place where UCX's codes become ours.
#ifndef WEFT_KERNELS_COMM_UCX_UCX_ERROR_H_
#define WEFT_KERNELS_COMM_UCX_UCX_ERROR_H_

#include <ucs/type/status.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace weft::comm::ucx {

// OK for UCS_OK; else an error that reads
// "<what>: <UCX's words>". What went away with a peer is UNAVAILABLE, a message
// longer than its receiver expects is INVALID_ARGUMENT.
absl::Status ToStatus(ucs_status_t status, absl::string_view what);

}  // namespace weft::comm::ucx

#endif  // WEFT_KERNELS_COMM_UCX_UCX_ERROR_H_

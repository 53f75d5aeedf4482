// From absl::Status to what a gRPC client sees.
#ifndef WEFT_COORDINATOR_SERVICE_STATUS_H_
#define WEFT_COORDINATOR_SERVICE_STATUS_H_

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace weft::coordinator {

// Same code; the message in printable ASCII and cut to what trailers hold.
// Payloads whose type is a URL become the details of a
// google.rpc.Status, which travels in grpc-status-details-bin.
grpc::Status ToGrpc(const absl::Status& status);

}  // namespace weft::coordinator

#endif  // WEFT_COORDINATOR_SERVICE_STATUS_H_

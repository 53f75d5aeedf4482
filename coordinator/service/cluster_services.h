// weft.v1.ClusterService and weft.worker.v1.WorkerControlService over a
// dispatcher.
#ifndef WEFT_COORDINATOR_SERVICE_CLUSTER_SERVICES_H_
#define WEFT_COORDINATOR_SERVICE_CLUSTER_SERVICES_H_

#include <grpcpp/impl/codegen/service_type.h>

#include <memory>
#include <string>

#include "absl/time/time.h"
#include "coordinator/core/dispatcher.h"

namespace weft::coordinator {

// What the coordinator says of itself.
struct CoordinatorIdentity {
  std::string version;
  std::string http_address;  // empty when off
};

// Both borrow the dispatcher, which outlives the server that runs the service.
// A stream that does not register within `register_timeout` ends with
// DEADLINE_EXCEEDED.
std::unique_ptr<grpc::Service> MakeClusterService(
    Dispatcher* dispatcher, const CoordinatorIdentity& identity);
std::unique_ptr<grpc::Service> MakeWorkerControlService(
    Dispatcher* dispatcher, absl::Duration register_timeout);

}  // namespace weft::coordinator

#endif  // WEFT_COORDINATOR_SERVICE_CLUSTER_SERVICES_H_

// weft.v1.ClusterService and weft.worker.v1.WorkerControlService over a
// dispatcher.
#ifndef WEFT_COORDINATOR_SERVICE_CLUSTER_SERVICES_H_
#define WEFT_COORDINATOR_SERVICE_CLUSTER_SERVICES_H_

#include <grpcpp/impl/codegen/service_type.h>

#include <memory>
#include <string>

#include "coordinator/core/dispatcher.h"

namespace weft::coordinator {

// What the coordinator says of itself.
struct CoordinatorIdentity {
  std::string version;
  std::string http_address;  // empty when off
};

// Both borrow the dispatcher, which outlives the server that runs the service.
std::unique_ptr<grpc::Service> MakeClusterService(
    Dispatcher* dispatcher, const CoordinatorIdentity& identity);
std::unique_ptr<grpc::Service> MakeWorkerControlService(Dispatcher* dispatcher);

}  // namespace weft::coordinator

#endif  // WEFT_COORDINATOR_SERVICE_CLUSTER_SERVICES_H_

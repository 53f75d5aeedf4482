// weft.v1.JobService over a dispatcher.
#ifndef WEFT_COORDINATOR_SERVICE_JOB_SERVICE_H_
#define WEFT_COORDINATOR_SERVICE_JOB_SERVICE_H_

#include <grpcpp/impl/codegen/service_type.h>

#include <memory>

#include "coordinator/core/dispatcher.h"
#include "coordinator/core/plan_compiler.h"

namespace weft::coordinator {

// Borrows both; they outlive the server that runs the service.
std::unique_ptr<grpc::Service> MakeJobService(Dispatcher* dispatcher,
                                              const PlanCompiler* compiler);

}  // namespace weft::coordinator

#endif  // WEFT_COORDINATOR_SERVICE_JOB_SERVICE_H_

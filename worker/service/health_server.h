// HealthServer: the standard gRPC health service of a worker, for probes.
#ifndef WEFT_WORKER_SERVICE_HEALTH_SERVER_H_
#define WEFT_WORKER_SERVICE_HEALTH_SERVER_H_

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "base/ticker.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/server.h"
#include "worker/service/pulse.h"

namespace weft::service {

// What is said of a worker.
struct Health {
  // Its device is there; of a supervisor: every child has been started once.
  bool has_started = false;
  bool is_ready = false;  // attached, so that it can take a job
};

// Answers grpc.health.v1.Health with these service names:
//
//   startup     has_started
//   readiness   is_ready
//   liveness    the pulse: the worker's own loop turns. Never depends on
//               peers or on the device.
//   (none)      as liveness
//
// A loop that stands still is not ready, either. All of them are SERVING or
// NOT_SERVING; any other name is NOT_FOUND.
// Thread-safe. Serves from Start() to its end.
class HealthServer {
 public:
  struct Options {
    std::string address;           // host:port; port 0 takes a free one
    const Pulse* pulse = nullptr;  // outlives the server
  };

  // UNAVAILABLE, naming the address, when it cannot be listened on.
  static absl::StatusOr<std::unique_ptr<HealthServer>> Start(
      const Options& options);
  ~HealthServer();

  // host:port with the port taken.
  const std::string& address() const { return address_; }

  void Set(const Health& health);

 private:
  HealthServer(std::unique_ptr<grpc::CallbackGenericService> nothing,
               std::unique_ptr<grpc::Server> server, std::string address,
               const Pulse& pulse);
  void Publish();

  const std::unique_ptr<grpc::CallbackGenericService> nothing_;
  const std::unique_ptr<grpc::Server> server_;  // ends before its service
  const std::string address_;
  const Pulse& pulse_;
  Mutex mu_;
  Health health_ ABSL_GUARDED_BY(mu_);
  Ticker watch_;  // last: it uses the fields above
};

}  // namespace weft::service

#endif  // WEFT_WORKER_SERVICE_HEALTH_SERVER_H_

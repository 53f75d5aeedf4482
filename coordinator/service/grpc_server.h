// The coordinator's gRPC endpoint: its services, health and reflection.
#ifndef WEFT_COORDINATOR_SERVICE_GRPC_SERVER_H_
#define WEFT_COORDINATOR_SERVICE_GRPC_SERVER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "coordinator/core/dispatcher.h"
#include "coordinator/core/plan_compiler.h"

namespace weft::coordinator {

// Serves from Start() until Shutdown() or its end. Thread-safe.
//
// The health service knows the process (no name), each service by its full
// name, and what probes ask: startup, readiness, liveness.
class GrpcServer {
 public:
  struct Options {
    std::string listen_address;        // host:port; port 0 takes a free one
    Dispatcher* dispatcher = nullptr;  // borrowed
    const PlanCompiler* compiler = nullptr;  // borrowed
    std::string version;
    std::string http_address;  // where metrics are; empty when off
    // A stream of WorkerControlService that has not said Register by then ends.
    absl::Duration register_timeout = absl::Seconds(10);
  };

  // UNAVAILABLE when the address cannot be bound.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(
      const Options& options);
  virtual ~GrpcServer() = default;

  virtual int port() const = 0;
  // host:port with the port taken.
  virtual const std::string& address() const = 0;

  // What readiness and liveness say; both are true until these say otherwise.
  // Clients and workers can call: false while the store is slow, too.
  virtual void SetReady(bool is_ready) = 0;
  // The process can still do its work. Being killed for not being alive costs
  // every running job, so a slow disk is no reason.
  virtual void SetAlive(bool is_alive) = 0;

  // Says NOT_SERVING, takes no new calls, gives those under way `grace`, then
  // cancels them.
  virtual void Shutdown(absl::Duration grace) = 0;
};

}  // namespace weft::coordinator

#endif  // WEFT_COORDINATOR_SERVICE_GRPC_SERVER_H_

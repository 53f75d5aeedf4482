// HealthServer: the standard gRPC health service of a worker, for probes.
#ifndef WEFT_WORKER_SERVICE_HEALTH_SERVER_H_
#define WEFT_WORKER_SERVICE_HEALTH_SERVER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "base/ticker.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/server.h"

namespace weft::service {

// What is said of a worker.
struct Health {
  bool has_started = false;  // its device is there
  bool is_ready = false;     // attached, so that it can take a job
};

// Answers grpc.health.v1.Health with these service names:
//
//   startup     has_started
//   readiness   is_ready
//   liveness    the worker's own loop turns: it said Beat() not long ago.
//               Never depends on peers or on the device.
//   (none)      as liveness
//
// A loop that stands still is not ready, either. All of them are SERVING or
// NOT_SERVING; any other name is NOT_FOUND.
// Thread-safe. Serves from Start() to its end.
class HealthServer {
 public:
  struct Options {
    std::string address;  // host:port; port 0 takes a free one
    // A loop that has not said Beat() for this long stands still.
    absl::Duration patience = absl::Seconds(10);
  };

  // UNAVAILABLE, naming the address, when it cannot be listened on.
  static absl::StatusOr<std::unique_ptr<HealthServer>> Start(
      const Options& options);
  ~HealthServer();

  // host:port with the port taken.
  const std::string& address() const { return address_; }

  void Beat(const Health& health);

 private:
  HealthServer(std::unique_ptr<grpc::CallbackGenericService> nothing,
               std::unique_ptr<grpc::Server> server, std::string address,
               absl::Duration patience);
  bool IsTurning() const;
  void Publish();

  const std::unique_ptr<grpc::CallbackGenericService> nothing_;
  const std::unique_ptr<grpc::Server> server_;  // ends before its service
  const std::string address_;
  const absl::Duration patience_;
  std::atomic<int64_t> last_beat_ns_;
  Mutex mu_;
  Health health_ ABSL_GUARDED_BY(mu_);
  Ticker watch_;  // last: it uses the fields above
};

}  // namespace weft::service

#endif  // WEFT_WORKER_SERVICE_HEALTH_SERVER_H_

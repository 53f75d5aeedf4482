// HttpServer: /metrics and /healthz of a worker.
#ifndef WEFT_WORKER_TELEMETRY_HTTP_SERVER_H_
#define WEFT_WORKER_TELEMETRY_HTTP_SERVER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/telemetry/metrics.h"

class CivetServer;

namespace weft::telemetry {

// Serves while it lives, with three threads and one listening socket.
//
//   GET /metrics   Prometheus text format 0.0.4
//   GET /healthz   200 "ok": the process answers
class HttpServer {
 public:
  // `address` is ADDRESS:PORT; port 0 takes a free one. UNAVAILABLE when it
  // cannot be listened on. `metrics` outlives the server.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(
      absl::string_view address, const WorkerMetrics* metrics);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Where it listens, with the real port.
  const std::string& address() const { return address_; }

 private:
  class MetricsHandler;
  class HealthHandler;

  HttpServer();

  std::string address_;
  std::unique_ptr<MetricsHandler> metrics_handler_;
  std::unique_ptr<HealthHandler> health_handler_;
  std::unique_ptr<CivetServer> server_;  // last: it calls the handlers
};

}  // namespace weft::telemetry

#endif  // WEFT_WORKER_TELEMETRY_HTTP_SERVER_H_

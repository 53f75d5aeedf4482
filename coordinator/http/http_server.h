// The coordinator's HTTP endpoint.
//
//   GET /          a page for people
//   GET /statusz   the same and more, as JSON
//   GET /metrics   Prometheus text format 0.0.4
//   GET /healthz   200 while the coordinator can do its work
//   GET /readyz    200 while it takes jobs and workers
//
// Where they do not say 200, it is 503 and why not.
#ifndef WEFT_COORDINATOR_HTTP_HTTP_SERVER_H_
#define WEFT_COORDINATOR_HTTP_HTTP_SERVER_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace weft::coordinator {

// Serves from Start() until its end. Handlers are called from several threads.
class HttpServer {
 public:
  struct Options {
    std::string listen_address;           // host:port; port 0 takes a free one
    std::function<std::string()> status;  // HTML of the page at /
    // Of /statusz. An error is answered as 500.
    std::function<absl::StatusOr<std::string>()> status_json;
    std::function<std::string()> metrics;  // Prometheus text
    // Neither may wait. An error is answered as 503; by / and /statusz too,
    // when it is that of readiness.
    std::function<absl::Status()> health;
    std::function<absl::Status()> readiness;
    // A connection that has not said what it wants by then is closed.
    absl::Duration request_timeout = absl::Seconds(1);
  };

  // UNAVAILABLE when the address cannot be bound.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(Options options);
  virtual ~HttpServer() = default;

  virtual int port() const = 0;
  // host:port with the port taken.
  virtual const std::string& address() const = 0;
};

}  // namespace weft::coordinator

#endif  // WEFT_COORDINATOR_HTTP_HTTP_SERVER_H_

// HttpServer: what a browser or a scraper sees of a worker.
#ifndef WEFT_WORKER_TELEMETRY_HTTP_SERVER_H_
#define WEFT_WORKER_TELEMETRY_HTTP_SERVER_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "worker/telemetry/metrics.h"

class CivetServer;

namespace weft::telemetry {

// Serves while it lives, with nine threads and one listening socket.
//
//   GET /          who the worker is and what it does; names the other pages
//   GET /statusz   the same and more, as a JSON object
//   GET /metrics   Prometheus text format 0.0.4
//   GET /healthz   200 "ok" while the worker does its work
//   GET /readyz    200 "ok" while the worker can be given jobs
//
// Where they do not say 200, it is 503 and why not.
// HEAD is answered like GET, without the text.
class HttpServer {
 public:
  // Pointers, and what `status` uses, outlive the server.
  struct Options {
    std::string address;  // as CheckAddress() takes it
    const WorkerMetrics* metrics = nullptr;
    // Lines for the page at /. Asked for every request, from a thread of the
    // server; may be empty.
    std::function<std::string()> status;
    // The object for /statusz, whether the worker does its work, and whether it
    // is ready; likewise.
    std::function<std::string()> status_json;
    std::function<absl::Status()> health;
    std::function<absl::Status()> readiness;
    // How long a client that connects and says nothing holds a thread.
    absl::Duration request_timeout = absl::Seconds(1);
  };

  // OK for ADDRESS:PORT, the address numeric; port 0 takes a free one.
  // INVALID_ARGUMENT, naming the rule, for anything else.
  static absl::Status CheckAddress(absl::string_view address);

  // INVALID_ARGUMENT as CheckAddress(); UNAVAILABLE when the address cannot be
  // listened on.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(Options options);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Where it listens, with the real port.
  const std::string& address() const { return address_; }

 private:
  class Page;
  struct Answer;

  HttpServer();

  // 200, or 503 and why.
  static Answer AnswerCheck(const std::function<absl::Status()>& check);

  void AddPage(const char* path, const char* type,
               std::function<Answer()> answer);
  void AddPages(Options options);

  std::string address_;
  std::vector<std::unique_ptr<Page>> pages_;
  std::unique_ptr<CivetServer> server_;  // last: it calls the pages
};

}  // namespace weft::telemetry

#endif  // WEFT_WORKER_TELEMETRY_HTTP_SERVER_H_

// HttpServer: the pages of a process, for browsers, scrapers and probes.
#ifndef WEFT_MONITORING_HTTP_SERVER_H_
#define WEFT_MONITORING_HTTP_SERVER_H_

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace weft::monitoring {

struct Answer {
  int code = 200;
  const char* type = "text/plain; charset=utf-8";
  std::string body;
};

// Pages by their paths, e.g. "/metrics". Each is asked for every request.
using Pages = std::map<std::string, std::function<Answer()>>;

Answer TextAnswer(std::string body);
Answer HtmlAnswer(std::string body);
// 500, and why, when there is no JSON.
Answer JsonAnswer(absl::StatusOr<std::string> body);
// Prometheus' text format, version 0.0.4.
Answer MetricsAnswer(std::string body);
// 200 "ok", or 503 and why not.
Answer CheckAnswer(const absl::Status& check);

// Serves from Start() to its end, with 17 threads. HEAD is answered like GET,
// without the body; other paths are 404.
class HttpServer {
 public:
  struct Options {
    std::string address;  // as CheckAddress() takes it
    // Asked from several threads at once; what they use outlives the server.
    Pages pages;
    // How long a client that connects and says nothing holds a thread.
    absl::Duration request_timeout = absl::Seconds(1);
  };

  // OK for ADDRESS:PORT, the address numeric; port 0 takes a free one.
  // INVALID_ARGUMENT, naming the rule, for anything else.
  static absl::Status CheckAddress(absl::string_view address);

  // INVALID_ARGUMENT as CheckAddress(); UNAVAILABLE, naming the address, when
  // it cannot be listened on.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(Options options);
  virtual ~HttpServer() = default;

  // Where it listens, with the port taken.
  virtual const std::string& address() const = 0;
};

}  // namespace weft::monitoring

#endif  // WEFT_MONITORING_HTTP_SERVER_H_

#include "coordinator/http/http_server.h"

#include <CivetServer.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/mutex.h"

namespace weft::coordinator {
namespace {

// Connections served at once. One that says nothing holds a thread until its
// time is up.
constexpr int kThreads = 16;

struct Answer {
  int code = 200;
  const char* reason = "OK";
  const char* type = "text/plain; charset=utf-8";
  std::string body;
};

// One path. HEAD gets the head of what GET gets.
class PathHandler : public CivetHandler {
 public:
  explicit PathHandler(std::function<Answer()> answer)
      : answer_(std::move(answer)) {}
  bool handleGet(CivetServer*, mg_connection* connection) override {
    const Answer answer = answer_();
    WriteHead(connection, answer);
    mg_write(connection, answer.body.data(), answer.body.size());
    return true;
  }
  bool handleHead(CivetServer*, mg_connection* connection) override {
    WriteHead(connection, answer_());
    return true;
  }

 private:
  static void WriteHead(mg_connection* connection, const Answer& answer) {
    const std::string head = absl::StrFormat(
        "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n"
        "Connection: close\r\n\r\n",
        answer.code, answer.reason, answer.type, answer.body.size());
    mg_write(connection, head.data(), head.size());
  }

  const std::function<Answer()> answer_;
};

Answer AnswerError(int code, const char* reason, const absl::Status& why) {
  Answer answer;
  answer.code = code;
  answer.reason = reason;
  answer.body = absl::StrCat(why.message(), "\n");
  return answer;
}

Answer AnswerCheck(const absl::Status& status) {
  if (!status.ok()) return AnswerError(503, "Service Unavailable", status);
  Answer answer;
  answer.body = "ok\n";
  return answer;
}

// Where a client on this machine finds a server that listens on `address`.
std::string ConnectHost(absl::string_view address) {
  const size_t colon = address.rfind(':');
  const absl::string_view host = address.substr(0, colon);
  const bool is_any = colon == absl::string_view::npos || host.empty() ||
                      host == "0.0.0.0" || host == "[::]";
  return is_any ? "127.0.0.1" : std::string(host);
}

class HttpServerImpl : public HttpServer {
 public:
  HttpServerImpl(HttpServer::Options options,
                 std::unique_ptr<CivetServer> server, int port,
                 std::string address)
      : options_(std::move(options)),
        server_(std::move(server)),
        port_(port),
        address_(std::move(address)) {
    server_->addHandler("/$", status_);
    server_->addHandler("/metrics$", metrics_);
    server_->addHandler("/healthz$", health_);
    server_->addHandler("/readyz$", readiness_);
    server_->addHandler("/statusz$", status_json_);
  }

  // civetweb's acceptor sees that it must stop when somebody connects, or else
  // every two seconds: so connect until it has stopped.
  ~HttpServerImpl() override {
    Notification closed;
    std::thread closer([&] {
      server_->close();
      closed.Notify();
    });
    while (!closed.WaitForNotificationWithTimeout(absl::Milliseconds(10))) {
      char error[64];
      mg_connection* connection =
          mg_connect_client(ConnectHost(address_).c_str(), port_,
                            /*use_ssl=*/0, error, sizeof(error));
      if (connection != nullptr) mg_close_connection(connection);
    }
    closer.join();
  }

  int port() const override { return port_; }
  const std::string& address() const override { return address_; }

 private:
  // What asks the dispatcher waits for it: not while it hangs.
  Answer AnswerStatus(
      const char* type,
      const std::function<absl::StatusOr<std::string>()>& text) const {
    if (absl::Status ready = options_.readiness(); !ready.ok()) {
      return AnswerCheck(ready);
    }
    absl::StatusOr<std::string> body = text();
    if (!body.ok()) {
      return AnswerError(500, "Internal Server Error", body.status());
    }
    Answer answer;
    answer.type = type;
    answer.body = *std::move(body);
    return answer;
  }
  Answer AnswerMetrics() const {
    Answer answer;
    answer.type = "text/plain; version=0.0.4; charset=utf-8";
    answer.body = options_.metrics();
    return answer;
  }

  const HttpServer::Options options_;
  PathHandler status_{[this] {
    return AnswerStatus("text/html; charset=utf-8", options_.status);
  }};
  PathHandler status_json_{[this] {
    return AnswerStatus("application/json", options_.status_json);
  }};
  PathHandler metrics_{[this] { return AnswerMetrics(); }};
  PathHandler health_{[this] { return AnswerCheck(options_.health()); }};
  PathHandler readiness_{[this] { return AnswerCheck(options_.readiness()); }};
  const std::unique_ptr<CivetServer> server_;  // ends before the handlers
  const int port_;
  const std::string address_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(Options options) {
  const std::vector<std::string> settings = {
      "listening_ports",
      options.listen_address,
      "num_threads",
      absl::StrCat(kThreads),
      "request_timeout_ms",
      absl::StrCat(absl::ToInt64Milliseconds(options.request_timeout)),
  };
  std::unique_ptr<CivetServer> server;
  try {
    server = std::make_unique<CivetServer>(settings);
  } catch (const CivetException& error) {
    return absl::UnavailableError(absl::StrCat(
        "cannot listen on ", options.listen_address, " for HTTP: ",
        error.what(), "; is the address this machine's, and the port free?"));
  }
  const std::vector<int> ports = server->getListeningPorts();
  if (ports.empty()) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", options.listen_address));
  }
  const absl::string_view listen = options.listen_address;
  std::string address =
      absl::StrCat(listen.substr(0, listen.rfind(':')), ":", ports[0]);
  return std::make_unique<HttpServerImpl>(std::move(options), std::move(server),
                                          ports[0], std::move(address));
}

}  // namespace weft::coordinator

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

void Respond(mg_connection* connection, int code, const char* reason,
             const char* type, const std::string& body) {
  const std::string head = absl::StrFormat(
      "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n"
      "Connection: close\r\n\r\n",
      code, reason, type, body.size());
  mg_write(connection, head.data(), head.size());
  mg_write(connection, body.data(), body.size());
}

// Where a client on this machine finds a server that listens on `address`.
std::string ConnectHost(absl::string_view address) {
  const size_t colon = address.rfind(':');
  const absl::string_view host = address.substr(0, colon);
  const bool is_any = colon == absl::string_view::npos || host.empty() ||
                      host == "0.0.0.0" || host == "[::]";
  return is_any ? "127.0.0.1" : std::string(host);
}

class MetricsHandler : public CivetHandler {
 public:
  explicit MetricsHandler(std::function<std::string()> metrics)
      : metrics_(std::move(metrics)) {}
  bool handleGet(CivetServer*, mg_connection* connection) override {
    Respond(connection, 200, "OK", "text/plain; version=0.0.4; charset=utf-8",
            metrics_());
    return true;
  }

 private:
  const std::function<std::string()> metrics_;
};

class HealthHandler : public CivetHandler {
 public:
  explicit HealthHandler(std::function<bool()> is_healthy)
      : is_healthy_(std::move(is_healthy)) {}
  bool handleGet(CivetServer*, mg_connection* connection) override {
    if (is_healthy_()) {
      Respond(connection, 200, "OK", "text/plain", "ok\n");
    } else {
      Respond(connection, 503, "Service Unavailable", "text/plain",
              "shutting down\n");
    }
    return true;
  }

 private:
  const std::function<bool()> is_healthy_;
};

class HttpServerImpl : public HttpServer {
 public:
  HttpServerImpl(HttpServer::Options options,
                 std::unique_ptr<CivetServer> server, int port,
                 std::string address)
      : metrics_(std::move(options.metrics)),
        health_(std::move(options.is_healthy)),
        server_(std::move(server)),
        port_(port),
        address_(std::move(address)) {
    server_->addHandler("/metrics$", metrics_);
    server_->addHandler("/healthz$", health_);
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
  MetricsHandler metrics_;
  HealthHandler health_;
  const std::unique_ptr<CivetServer> server_;  // ends before the handlers
  const int port_;
  const std::string address_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(Options options) {
  const std::vector<std::string> settings = {
      "listening_ports",    options.listen_address,
      "num_threads",        "4",
      "request_timeout_ms", "10000",
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

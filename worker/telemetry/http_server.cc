#include "worker/telemetry/http_server.h"

#include <vector>

#include "CivetServer.h"
#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace weft::telemetry {
namespace {

bool Reply(mg_connection* connection, const char* type,
           const std::string& body) {
  mg_printf(connection,
            "HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %zu\r\n"
            "Connection: close\r\n\r\n",
            type, body.size());
  mg_write(connection, body.data(), body.size());
  return true;
}

}  // namespace

class HttpServer::MetricsHandler : public CivetHandler {
 public:
  explicit MetricsHandler(const WorkerMetrics* metrics) : metrics_(metrics) {}

  bool handleGet(CivetServer*, mg_connection* connection) override {
    return Reply(connection, "text/plain; version=0.0.4; charset=utf-8",
                 metrics_->Scrape());
  }

 private:
  const WorkerMetrics* const metrics_;
};

class HttpServer::HealthHandler : public CivetHandler {
 public:
  bool handleGet(CivetServer*, mg_connection* connection) override {
    return Reply(connection, "text/plain; charset=utf-8", "ok\n");
  }
};

HttpServer::HttpServer() = default;
HttpServer::~HttpServer() = default;

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(
    absl::string_view address, const WorkerMetrics* metrics) {
  const size_t colon = address.rfind(':');
  if (colon == absl::string_view::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("http address \"", address, "\" is not ADDRESS:PORT"));
  }
  auto server = absl::WrapUnique(new HttpServer());
  server->metrics_handler_ = std::make_unique<MetricsHandler>(metrics);
  server->health_handler_ = std::make_unique<HealthHandler>();
  const std::vector<std::string> options = {
      "listening_ports", std::string(address), "num_threads", "2",
      // A client that connects and says nothing holds a thread so long.
      "request_timeout_ms", "5000"};
  try {
    server->server_ = std::make_unique<CivetServer>(options);
  } catch (const CivetException& error) {
    return absl::UnavailableError(
        absl::StrCat("cannot serve http on ", address, ": ", error.what()));
  }
  const std::vector<int> ports = server->server_->getListeningPorts();
  if (ports.empty()) {
    return absl::UnavailableError(
        absl::StrCat("cannot serve http on ", address, ": no port is open"));
  }
  server->address_ = absl::StrCat(address.substr(0, colon), ":", ports[0]);
  server->server_->addHandler("/metrics", *server->metrics_handler_);
  server->server_->addHandler("/healthz", *server->health_handler_);
  return server;
}

}  // namespace weft::telemetry

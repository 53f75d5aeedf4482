#include "worker/telemetry/http_server.h"

#include <arpa/inet.h>

#include <algorithm>
#include <utility>

#include "CivetServer.h"
#include "absl/memory/memory.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace weft::telemetry {
namespace {

constexpr char kPlainText[] = "text/plain; charset=utf-8";
constexpr char kJsonText[] = "application/json";
constexpr char kMetricsText[] = "text/plain; version=0.0.4; charset=utf-8";
// Each waits for a client of its own: some may say nothing for a while.
constexpr int kServingThreads = 8;

bool IsNumeric(absl::string_view host) {
  const bool bracketed =
      host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  in6_addr parsed;
  return inet_pton(bracketed ? AF_INET6 : AF_INET, std::string(host).c_str(),
                   &parsed) == 1;
}

bool IsPort(absl::string_view port) {
  int number = 0;
  return std::all_of(port.begin(), port.end(), &absl::ascii_isdigit) &&
         absl::SimpleAtoi(port, &number) && number <= 65535;
}

// What civetweb logs while a server starts, which its exceptions leave out.
thread_local std::string start_log;

int Log(const mg_connection*, const char* message) {
  absl::StrAppend(&start_log, start_log.empty() ? "" : "; ", message);
  return 1;
}

}  // namespace

struct HttpServer::Answer {
  std::string text;
  const char* status = "200 OK";
};

// A text, at one path.
class HttpServer::Page : public CivetHandler {
 public:
  Page(const char* type, std::function<Answer()> answer)
      : type_(type), answer_(std::move(answer)) {}

  bool handleGet(CivetServer*, mg_connection* connection) override {
    const Answer answer = answer_();
    WriteHead(connection, answer);
    mg_write(connection, answer.text.data(), answer.text.size());
    return true;
  }

  bool handleHead(CivetServer*, mg_connection* connection) override {
    WriteHead(connection, answer_());
    return true;
  }

 private:
  void WriteHead(mg_connection* connection, const Answer& answer) const {
    mg_printf(connection,
              "HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n"
              "Connection: close\r\n\r\n",
              answer.status, type_, answer.text.size());
  }

  const char* const type_;
  const std::function<Answer()> answer_;
};

HttpServer::HttpServer() = default;
HttpServer::~HttpServer() = default;

absl::Status HttpServer::CheckAddress(absl::string_view address) {
  const size_t colon = address.rfind(':');
  if (colon != absl::string_view::npos && IsNumeric(address.substr(0, colon)) &&
      IsPort(address.substr(colon + 1))) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("http_address=", address,
                   " is not ADDRESS:PORT, a numeric address and a port up to "
                   "65535"));
}

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(Options options) {
  const std::string& address = options.address;
  RETURN_IF_ERROR(CheckAddress(address));
  auto server = absl::WrapUnique(new HttpServer());
  const std::vector<std::string> settings = {
      "listening_ports",
      address,
      "num_threads",
      absl::StrCat(kServingThreads),
      "request_timeout_ms",
      absl::StrCat(absl::ToInt64Milliseconds(options.request_timeout))};
  CivetCallbacks callbacks;
  callbacks.log_message = &Log;
  start_log.clear();
  try {
    server->server_ = std::make_unique<CivetServer>(settings, &callbacks);
  } catch (const CivetException& error) {
    return absl::UnavailableError(
        absl::StrCat("cannot serve http on ", address, ": ",
                     start_log.empty() ? error.what() : start_log));
  }
  const std::vector<int> ports = server->server_->getListeningPorts();
  if (ports.empty()) {
    return absl::UnavailableError(
        absl::StrCat("cannot serve http on ", address, ": no port is open"));
  }
  server->address_ =
      absl::StrCat(address.substr(0, address.rfind(':')), ":", ports[0]);
  server->AddPages(std::move(options));
  return server;
}

HttpServer::Answer HttpServer::AnswerCheck(
    const std::function<absl::Status()>& check) {
  const absl::Status status = check ? check() : absl::OkStatus();
  if (status.ok()) return {"ok\n"};
  return {absl::StrCat(status.message(), "\n"), "503 Service Unavailable"};
}

void HttpServer::AddPages(Options options) {
  AddPage("/metrics", kMetricsText, [metrics = options.metrics]() -> Answer {
    return {metrics->Scrape()};
  });
  AddPage("/healthz", kPlainText,
          [health = std::move(options.health)] { return AnswerCheck(health); });
  AddPage("/readyz", kPlainText, [readiness = std::move(options.readiness)] {
    return AnswerCheck(readiness);
  });
  AddPage("/statusz", kJsonText,
          [status = std::move(options.status_json)]() -> Answer {
            return {absl::StrCat(status ? status() : "{}", "\n")};
          });
  // The dollar ends the path: without it all paths would match.
  AddPage("/$", kPlainText, [status = std::move(options.status)]() -> Answer {
    return {absl::StrCat(status ? status() : "",
                         "\n/statusz\n/metrics\n/healthz\n/readyz\n")};
  });
}

void HttpServer::AddPage(const char* path, const char* type,
                         std::function<Answer()> answer) {
  pages_.push_back(std::make_unique<Page>(type, std::move(answer)));
  server_->addHandler(path, *pages_.back());
}

}  // namespace weft::telemetry

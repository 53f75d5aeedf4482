#include "monitoring/http_server.h"

#include <arpa/inet.h>

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include "CivetServer.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/mutex.h"
#include "base/status_macros.h"

namespace weft::monitoring {
namespace {

// Connections served at once. One that says nothing holds a thread until its
// time is up.
constexpr int kThreads = 16;

const char* ReasonOf(int code) {
  return code == 200   ? "OK"
         : code == 503 ? "Service Unavailable"
                       : "Internal Server Error";
}

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

// One path.
class PageHandler : public CivetHandler {
 public:
  explicit PageHandler(std::function<Answer()> page) : page_(std::move(page)) {}

  bool handleGet(CivetServer*, mg_connection* connection) override {
    const Answer answer = page_();
    WriteHead(connection, answer);
    mg_write(connection, answer.body.data(), answer.body.size());
    return true;
  }
  bool handleHead(CivetServer*, mg_connection* connection) override {
    WriteHead(connection, page_());
    return true;
  }

 private:
  static void WriteHead(mg_connection* connection, const Answer& answer) {
    const std::string head = absl::StrFormat(
        "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n"
        "Connection: close\r\n\r\n",
        answer.code, ReasonOf(answer.code), answer.type, answer.body.size());
    mg_write(connection, head.data(), head.size());
  }

  const std::function<Answer()> page_;
};

// Where a client on this machine finds a server that listens on `address`.
std::string ConnectHost(absl::string_view address) {
  const absl::string_view host = address.substr(0, address.rfind(':'));
  if (host == "0.0.0.0") return "127.0.0.1";
  if (host == "[::]") return "::1";
  return std::string(host.front() == '[' ? host.substr(1, host.size() - 2)
                                         : host);
}

class HttpServerImpl : public HttpServer {
 public:
  HttpServerImpl(const Pages& pages, std::unique_ptr<CivetServer> server,
                 std::string address, int port)
      : server_(std::move(server)), address_(std::move(address)), port_(port) {
    for (const auto& [path, page] : pages) {
      handlers_.push_back(std::make_unique<PageHandler>(page));
      // The dollar ends the path: else it would match all that begin with it.
      server_->addHandler(path + "$", *handlers_.back());
    }
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

  const std::string& address() const override { return address_; }

 private:
  std::vector<std::unique_ptr<PageHandler>> handlers_;
  const std::unique_ptr<CivetServer> server_;  // ends before the handlers
  const std::string address_;
  const int port_;
};

Answer ErrorAnswer(int code, const absl::Status& why) {
  Answer answer = TextAnswer(absl::StrCat(why.message(), "\n"));
  answer.code = code;
  return answer;
}

}  // namespace

Answer TextAnswer(std::string body) {
  Answer answer;
  answer.body = std::move(body);
  return answer;
}

Answer HtmlAnswer(std::string body) {
  return {200, "text/html; charset=utf-8", std::move(body)};
}

Answer JsonAnswer(absl::StatusOr<std::string> body) {
  if (!body.ok()) return ErrorAnswer(500, body.status());
  return {200, "application/json", *std::move(body)};
}

Answer MetricsAnswer(std::string body) {
  return {200, "text/plain; version=0.0.4; charset=utf-8", std::move(body)};
}

Answer CheckAnswer(const absl::Status& check) {
  return check.ok() ? TextAnswer("ok\n") : ErrorAnswer(503, check);
}

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
  const std::vector<std::string> settings = {
      "listening_ports",
      address,
      "num_threads",
      absl::StrCat(kThreads),
      "request_timeout_ms",
      absl::StrCat(absl::ToInt64Milliseconds(options.request_timeout))};
  CivetCallbacks callbacks;
  callbacks.log_message = &Log;
  start_log.clear();
  std::unique_ptr<CivetServer> server;
  try {
    server = std::make_unique<CivetServer>(settings, &callbacks);
  } catch (const CivetException& error) {
    return absl::UnavailableError(
        absl::StrCat("cannot serve http on ", address, ": ",
                     start_log.empty() ? error.what() : start_log));
  }
  const std::vector<int> ports = server->getListeningPorts();
  if (ports.empty()) {
    return absl::UnavailableError(
        absl::StrCat("cannot serve http on ", address, ": no port is open"));
  }
  return std::make_unique<HttpServerImpl>(
      options.pages, std::move(server),
      absl::StrCat(address.substr(0, address.rfind(':')), ":", ports[0]),
      ports[0]);
}

}  // namespace weft::monitoring

#include "worker/telemetry/http_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::telemetry {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// A connection to the server; closed on destruction.
class Client {
 public:
  explicit Client(const std::string& address)
      : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    int port = 0;
    if (!absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port)) {
      return;
    }
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    is_connected_ =
        connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0;
  }
  ~Client() { close(fd_); }
  Client(const Client&) = delete;

  bool is_connected() const { return is_connected_; }

  // The whole answer, or "" when nobody answers.
  std::string Ask(const std::string& method, const std::string& path) {
    const std::string request =
        absl::StrCat(method, " ", path, " HTTP/1.1\r\nHost: x\r\n\r\n");
    std::string answer;
    if (!is_connected_ || write(fd_, request.data(), request.size()) <= 0) {
      return answer;
    }
    char buffer[4096];
    ssize_t n;
    while ((n = read(fd_, buffer, sizeof(buffer))) > 0) {
      answer.append(buffer, n);
    }
    return answer;
  }

 private:
  const int fd_;
  bool is_connected_ = false;
};

std::string Get(const std::string& address, const std::string& path) {
  return Client(address).Ask("GET", path);
}

HttpServer::Options OptionsFor(const WorkerMetrics& metrics) {
  HttpServer::Options options;
  options.address = "127.0.0.1:0";
  options.metrics = &metrics;
  return options;
}

std::unique_ptr<WorkerMetrics> NewMetrics() {
  return std::make_unique<WorkerMetrics>();
}

TEST(HttpServerTest, ServesMetricsAndHealthOnAFreePort) {
  const auto metrics = NewMetrics();
  ASSERT_OK_AND_ASSIGN(auto server, HttpServer::Start(OptionsFor(*metrics)));
  EXPECT_THAT(server->address(), StartsWith("127.0.0.1:"));
  JobLabels labels;
  labels.job_id = "tiny-1";
  metrics->BeginJob(labels);
  EXPECT_THAT(Get(server->address(), "/metrics"),
              AllOf(StartsWith("HTTP/1.1 200 OK\r\n"),
                    HasSubstr("text/plain; version=0.0.4"),
                    HasSubstr("weft_rank_steps_total{job_id=\"tiny-1\"} 0\n")));
  EXPECT_THAT(Get(server->address(), "/healthz"), HasSubstr("\r\n\r\nok\n"));
  EXPECT_THAT(Get(server->address(), "/other"), StartsWith("HTTP/1.1 404"));
}

TEST(HttpServerTest, DestructionClosesThePort) {
  const auto metrics = NewMetrics();
  ASSERT_OK_AND_ASSIGN(auto server, HttpServer::Start(OptionsFor(*metrics)));
  const std::string address = server->address();
  server.reset();
  EXPECT_EQ(Get(address, "/healthz"), "");
}

TEST(HttpServerTest, RefusesAnAddressInUseOrMalformed) {
  const auto metrics = NewMetrics();
  ASSERT_OK_AND_ASSIGN(auto server, HttpServer::Start(OptionsFor(*metrics)));
  HttpServer::Options options = OptionsFor(*metrics);
  options.address = server->address();
  EXPECT_THAT(
      HttpServer::Start(options),
      StatusIs(absl::StatusCode::kUnavailable,
               AllOf(HasSubstr(server->address()), HasSubstr("in use"))));
  for (const char* malformed :
       {"", "localhost", "localhost:80", ":80", "80",
        "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1",
        "127.0.0.1:0,127.0.0.1:0", "::1:0", "127.0.0.1:80s"}) {
    options.address = malformed;
    EXPECT_THAT(HttpServer::Start(options),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr(absl::StrCat("=", malformed, " ")),
                               HasSubstr("ADDRESS:PORT"))));
  }
  EXPECT_OK(HttpServer::CheckAddress("[::1]:0"));
}

TEST(HttpServerTest, TheFirstPageTellsTheStatusAndNamesTheOthers) {
  const auto metrics = NewMetrics();
  HttpServer::Options options = OptionsFor(*metrics);
  options.status = [] { return "worker w-1\n"; };
  ASSERT_OK_AND_ASSIGN(auto server, HttpServer::Start(std::move(options)));
  EXPECT_THAT(Get(server->address(), "/"),
              AllOf(StartsWith("HTTP/1.1 200 OK\r\n"),
                    EndsWith("\r\n\r\nworker w-1\n\n/statusz\n/metrics\n"
                             "/healthz\n/readyz\n")));
}

TEST(HttpServerTest, StatuszIsJson) {
  const auto metrics = NewMetrics();
  HttpServer::Options options = OptionsFor(*metrics);
  options.status_json = [] { return "{\"worker_id\":\"w-1\"}"; };
  ASSERT_OK_AND_ASSIGN(auto server, HttpServer::Start(std::move(options)));
  EXPECT_THAT(Get(server->address(), "/statusz"),
              AllOf(StartsWith("HTTP/1.1 200 OK\r\n"),
                    HasSubstr("Content-Type: application/json\r\n"),
                    EndsWith("\r\n\r\n{\"worker_id\":\"w-1\"}\n")));
}

TEST(HttpServerTest, WhatIsNotReadySaysWhyAndIsHealthyAllTheSame) {
  const auto metrics = NewMetrics();
  HttpServer::Options options = OptionsFor(*metrics);
  std::atomic<bool> is_ready{false};
  options.readiness = [&] {
    return is_ready ? absl::OkStatus() : absl::UnavailableError("not attached");
  };
  ASSERT_OK_AND_ASSIGN(auto server, HttpServer::Start(std::move(options)));
  EXPECT_THAT(Get(server->address(), "/readyz"),
              AllOf(StartsWith("HTTP/1.1 503 Service Unavailable\r\n"),
                    EndsWith("\r\n\r\nnot attached\n")));
  EXPECT_THAT(Get(server->address(), "/healthz"), StartsWith("HTTP/1.1 200"));
  is_ready = true;
  EXPECT_THAT(Get(server->address(), "/readyz"), EndsWith("\r\n\r\nok\n"));
}

TEST(HttpServerTest, WhatDoesNotDoItsWorkSaysWhy) {
  const auto metrics = NewMetrics();
  HttpServer::Options options = OptionsFor(*metrics);
  options.health = [] { return absl::UnavailableError("stands still"); };
  ASSERT_OK_AND_ASSIGN(auto server, HttpServer::Start(std::move(options)));
  EXPECT_THAT(Get(server->address(), "/healthz"),
              AllOf(StartsWith("HTTP/1.1 503 Service Unavailable\r\n"),
                    EndsWith("\r\n\r\nstands still\n")));
}

TEST(HttpServerTest, HeadIsAnsweredWithoutTheText) {
  const auto metrics = NewMetrics();
  ASSERT_OK_AND_ASSIGN(auto server, HttpServer::Start(OptionsFor(*metrics)));
  for (const char* path :
       {"/", "/statusz", "/metrics", "/healthz", "/readyz"}) {
    EXPECT_THAT(Client(server->address()).Ask("HEAD", path),
                AllOf(StartsWith("HTTP/1.1 200 OK\r\n"),
                      HasSubstr("Content-Length: "), EndsWith("\r\n\r\n")));
  }
}

TEST(HttpServerTest, ConnectionsThatSayNothingDoNotKeepOthersOut) {
  const auto metrics = NewMetrics();
  HttpServer::Options options = OptionsFor(*metrics);
  options.request_timeout = absl::Hours(1);
  ASSERT_OK_AND_ASSIGN(auto server, HttpServer::Start(std::move(options)));
  std::vector<std::unique_ptr<Client>> idle;
  for (int i = 0; i < 4; ++i) {
    idle.push_back(std::make_unique<Client>(server->address()));
    ASSERT_TRUE(idle.back()->is_connected());
  }
  EXPECT_THAT(Get(server->address(), "/healthz"), EndsWith("\r\n\r\nok\n"));
}

TEST(HttpServerTest, AnyNumberOfThemAreClosedInTime) {
  const auto metrics = NewMetrics();
  HttpServer::Options options = OptionsFor(*metrics);
  options.request_timeout = absl::Milliseconds(10);
  ASSERT_OK_AND_ASSIGN(auto server, HttpServer::Start(std::move(options)));
  std::vector<std::unique_ptr<Client>> idle;
  for (int i = 0; i < 20; ++i) {
    idle.push_back(std::make_unique<Client>(server->address()));
  }
  EXPECT_THAT(Get(server->address(), "/healthz"), EndsWith("\r\n\r\nok\n"));
}

}  // namespace
}  // namespace weft::telemetry

#include "worker/telemetry/http_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::telemetry {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// The whole answer to a GET, or "" when nobody answers.
std::string Get(const std::string& address, const std::string& path) {
  int port = 0;
  if (!absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port))
    return "";
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string answer;
  if (connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0) {
    const std::string request =
        absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: x\r\n\r\n");
    if (write(fd, request.data(), request.size()) > 0) {
      char buffer[4096];
      ssize_t n;
      while ((n = read(fd, buffer, sizeof(buffer))) > 0) {
        answer.append(buffer, n);
      }
    }
  }
  close(fd);
  return answer;
}

std::unique_ptr<WorkerMetrics> NewMetrics() {
  return std::make_unique<WorkerMetrics>([] { return v1::ProcessFigures(); });
}

TEST(HttpServerTest, ServesMetricsAndHealthOnAFreePort) {
  const auto metrics = NewMetrics();
  ASSERT_OK_AND_ASSIGN(auto server,
                       HttpServer::Start("127.0.0.1:0", metrics.get()));
  EXPECT_THAT(server->address(), StartsWith("127.0.0.1:"));
  JobLabels labels;
  labels.job_id = "tiny-1";
  metrics->BeginJob(labels);
  EXPECT_THAT(Get(server->address(), "/metrics"),
              AllOf(StartsWith("HTTP/1.1 200 OK\r\n"),
                    HasSubstr("text/plain; version=0.0.4"),
                    HasSubstr("weft_step{job=\"tiny-1\"} 0\n")));
  EXPECT_THAT(Get(server->address(), "/healthz"), HasSubstr("\r\n\r\nok\n"));
  EXPECT_THAT(Get(server->address(), "/other"), StartsWith("HTTP/1.1 404"));
}

TEST(HttpServerTest, DestructionClosesThePort) {
  const auto metrics = NewMetrics();
  ASSERT_OK_AND_ASSIGN(auto server,
                       HttpServer::Start("127.0.0.1:0", metrics.get()));
  const std::string address = server->address();
  server.reset();
  EXPECT_EQ(Get(address, "/healthz"), "");
}

TEST(HttpServerTest, RefusesAnAddressInUseOrMalformed) {
  const auto metrics = NewMetrics();
  ASSERT_OK_AND_ASSIGN(auto server,
                       HttpServer::Start("127.0.0.1:0", metrics.get()));
  EXPECT_THAT(
      HttpServer::Start(server->address(), metrics.get()),
      StatusIs(absl::StatusCode::kUnavailable, HasSubstr(server->address())));
  EXPECT_THAT(HttpServer::Start("localhost", metrics.get()),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace weft::telemetry

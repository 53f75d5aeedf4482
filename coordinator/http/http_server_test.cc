#include "coordinator/http/http_server.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/status_matchers.h"
#include "coordinator/http/test_http.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class HttpServerTest : public ::testing::Test {
 protected:
  void Start(absl::Duration request_timeout = absl::Seconds(1)) {
    HttpServer::Options options;
    options.listen_address = "127.0.0.1:0";
    options.status = [] { return "<p>all is well"; };
    options.metrics = [] { return "metric 1\n"; };
    options.status_json = [this] { return json_; };
    options.health = [this] { return health_; };
    options.readiness = [this] { return readiness_; };
    options.request_timeout = request_timeout;
    ASSERT_OK_AND_ASSIGN(server_, HttpServer::Start(std::move(options)));
  }
  std::string Get(const std::string& path) {
    return HttpGet(server_->address(), path);
  }

  absl::StatusOr<std::string> json_ = "{\"jobs\":[]}\n";
  absl::Status health_;
  absl::Status readiness_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, ServesItsPaths) {
  Start();
  EXPECT_THAT(Get("/"), AllOf(StartsWith("HTTP/1.1 200 OK\r\n"),
                              HasSubstr("Content-Type: text/html"),
                              EndsWith("\r\n\r\n<p>all is well")));
  EXPECT_THAT(Get("/metrics"), EndsWith("\r\n\r\nmetric 1\n"));
  EXPECT_THAT(Get("/healthz"), EndsWith("\r\n\r\nok\n"));
  EXPECT_THAT(Get("/readyz"), EndsWith("\r\n\r\nok\n"));
  EXPECT_THAT(Get("/statusz"),
              AllOf(HasSubstr("Content-Type: application/json"),
                    EndsWith("\r\n\r\n{\"jobs\":[]}\n")));
  EXPECT_THAT(Get("/other"), HasSubstr("404 Not Found"));
}

TEST_F(HttpServerTest, HeadGetsNoBody) {
  Start();
  for (const char* path :
       {"/", "/statusz", "/metrics", "/healthz", "/readyz"}) {
    EXPECT_THAT(TestConnection(server_->address()).Call("HEAD", path),
                AllOf(StartsWith("HTTP/1.1 200 OK\r\n"),
                      HasSubstr("Content-Length: "), EndsWith("\r\n\r\n")));
  }
}

TEST_F(HttpServerTest, WhatIsNotHealthySaysWhy) {
  Start();
  health_ = absl::UnavailableError("shutting down");
  EXPECT_THAT(Get("/healthz"), AllOf(StartsWith("HTTP/1.1 503"),
                                     EndsWith("\r\n\r\nshutting down\n")));
}

TEST_F(HttpServerTest, AStatusThatCannotBeToldSaysWhy) {
  Start();
  json_ = absl::InternalError("no such time");
  EXPECT_THAT(Get("/statusz"), AllOf(StartsWith("HTTP/1.1 500"),
                                     EndsWith("\r\n\r\nno such time\n")));
}

TEST_F(HttpServerTest, WhatIsNotReadyIsHealthyAllTheSame) {
  Start();
  readiness_ = absl::UnavailableError("starting");
  // Pages that ask the dispatcher would wait for it.
  for (const char* path : {"/", "/statusz", "/readyz"}) {
    EXPECT_THAT(Get(path), AllOf(StartsWith("HTTP/1.1 503"),
                                 EndsWith("\r\n\r\nstarting\n")));
  }
  EXPECT_THAT(Get("/healthz"), StartsWith("HTTP/1.1 200"));
}

// Such connections stay open here longer than the test may take.
TEST_F(HttpServerTest, ConnectionsThatSayNothingHoldNobodyUp) {
  Start(absl::Minutes(30));
  std::vector<std::unique_ptr<TestConnection>> silent;
  for (int i = 0; i < 8; ++i) {
    silent.push_back(std::make_unique<TestConnection>(server_->address()));
    EXPECT_TRUE(silent.back()->is_open());
  }
  EXPECT_THAT(Get("/healthz"), EndsWith("ok\n"));
}

TEST_F(HttpServerTest, ConnectionsThatSayNothingAreClosed) {
  Start(absl::Milliseconds(10));
  std::vector<std::unique_ptr<TestConnection>> silent;
  for (int i = 0; i < 64; ++i) {
    silent.push_back(std::make_unique<TestConnection>(server_->address()));
  }
  EXPECT_THAT(Get("/healthz"), EndsWith("ok\n"));
}

}  // namespace
}  // namespace weft::coordinator

#include "monitoring/http_server.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "monitoring/http_get.h"

namespace weft::monitoring {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

HttpServer::Options SomePages() {
  HttpServer::Options options;
  options.address = "127.0.0.1:0";
  options.pages["/"] = [] { return HtmlAnswer("<p>all is well"); };
  options.pages["/text"] = [] { return TextAnswer("words\n"); };
  options.pages["/json"] = [] { return JsonAnswer(std::string("{}\n")); };
  options.pages["/no_json"] = [] {
    return JsonAnswer(absl::InternalError("no such time"));
  };
  options.pages["/metrics"] = [] { return MetricsAnswer("metric 1\n"); };
  options.pages["/ok"] = [] { return CheckAnswer(absl::OkStatus()); };
  options.pages["/not_ok"] = [] {
    return CheckAnswer(absl::UnavailableError("not attached"));
  };
  return options;
}

TEST(HttpServerTest, ServesItsPagesOnAFreePort) {
  ASSERT_OK_AND_ASSIGN(const auto server, HttpServer::Start(SomePages()));
  EXPECT_THAT(server->address(), StartsWith("127.0.0.1:"));
  const auto get = [&](const char* path) {
    return HttpGet(server->address(), path);
  };
  EXPECT_THAT(get("/"), AllOf(StartsWith("HTTP/1.1 200 OK\r\n"),
                              HasSubstr("Content-Type: text/html"),
                              EndsWith("\r\n\r\n<p>all is well")));
  EXPECT_THAT(get("/text"), EndsWith("\r\n\r\nwords\n"));
  EXPECT_THAT(get("/json"), AllOf(HasSubstr("Content-Type: application/json"),
                                  EndsWith("\r\n\r\n{}\n")));
  EXPECT_THAT(get("/no_json"),
              AllOf(StartsWith("HTTP/1.1 500 Internal Server Error\r\n"),
                    EndsWith("\r\n\r\nno such time\n")));
  EXPECT_THAT(get("/metrics"), AllOf(HasSubstr("text/plain; version=0.0.4"),
                                     EndsWith("\r\n\r\nmetric 1\n")));
  EXPECT_THAT(get("/ok"), EndsWith("\r\n\r\nok\n"));
  EXPECT_THAT(get("/not_ok"),
              AllOf(StartsWith("HTTP/1.1 503 Service Unavailable\r\n"),
                    EndsWith("\r\n\r\nnot attached\n")));
  for (const char* path : {"/other", "/metricsx", "/metrics/x"}) {
    EXPECT_THAT(get(path), HasSubstr(" 404 Not Found\r\n"));
  }
}

TEST(HttpServerTest, HeadIsAnsweredWithoutTheBody) {
  const HttpServer::Options options = SomePages();
  ASSERT_OK_AND_ASSIGN(const auto server, HttpServer::Start(options));
  for (const auto& [path, page] : options.pages) {
    EXPECT_THAT(
        HttpConnection(server->address()).Call("HEAD", path),
        AllOf(StartsWith(absl::StrCat("HTTP/1.1 ", page().code)),
              HasSubstr(absl::StrCat("Content-Length: ", page().body.size())),
              EndsWith("\r\n\r\n")));
  }
}

TEST(HttpServerTest, DestructionClosesThePort) {
  for (const char* address : {"127.0.0.1:0", "0.0.0.0:0"}) {
    HttpServer::Options options = SomePages();
    options.address = address;
    ASSERT_OK_AND_ASSIGN(auto server, HttpServer::Start(std::move(options)));
    const std::string taken = server->address();
    EXPECT_THAT(HttpGet(taken, "/ok"), EndsWith("ok\n"));
    server.reset();
    EXPECT_EQ(HttpGet(taken, "/ok"), "");
  }
}

TEST(HttpServerTest, RefusesAnAddressInUseOrMalformed) {
  ASSERT_OK_AND_ASSIGN(const auto server, HttpServer::Start(SomePages()));
  HttpServer::Options options;
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

// Such connections stay open here longer than the test may take.
TEST(HttpServerTest, ConnectionsThatSayNothingHoldNobodyUp) {
  HttpServer::Options options = SomePages();
  options.request_timeout = absl::Minutes(30);
  ASSERT_OK_AND_ASSIGN(const auto server, HttpServer::Start(options));
  std::vector<std::unique_ptr<HttpConnection>> silent;
  for (int i = 0; i < 8; ++i) {
    silent.push_back(std::make_unique<HttpConnection>(server->address()));
    EXPECT_TRUE(silent.back()->is_open());
  }
  EXPECT_THAT(HttpGet(server->address(), "/ok"), EndsWith("ok\n"));
}

TEST(HttpServerTest, AnyNumberOfThemAreClosedInTime) {
  HttpServer::Options options = SomePages();
  options.request_timeout = absl::Milliseconds(10);
  ASSERT_OK_AND_ASSIGN(const auto server, HttpServer::Start(options));
  std::vector<std::unique_ptr<HttpConnection>> silent;
  for (int i = 0; i < 64; ++i) {
    silent.push_back(std::make_unique<HttpConnection>(server->address()));
  }
  EXPECT_THAT(HttpGet(server->address(), "/ok"), EndsWith("ok\n"));
}

}  // namespace
}  // namespace weft::monitoring

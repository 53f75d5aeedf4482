#include "worker/service/health_server.h"

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/service/health_probe.h"

namespace weft::service {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<HealthServer> Start(absl::Duration patience) {
  HealthServer::Options options;
  options.address = "127.0.0.1:0";
  options.patience = patience;
  auto server = HealthServer::Start(options);
  EXPECT_OK(server.status());
  return server.ok() ? *std::move(server) : nullptr;
}

TEST(HealthServerTest, SaysWhatTheLastBeatSaid) {
  const auto server = Start(absl::Hours(1));
  EXPECT_EQ(Probe(server->address(), "startup"), "NOT_SERVING");
  EXPECT_EQ(Probe(server->address(), "readiness"), "NOT_SERVING");
  server->Beat({true, false});
  EXPECT_EQ(Probe(server->address(), "startup"), "SERVING");
  EXPECT_EQ(Probe(server->address(), "readiness"), "NOT_SERVING");
  server->Beat({true, true});
  EXPECT_EQ(Probe(server->address(), "readiness"), "SERVING");
  server->Beat({true, false});
  EXPECT_EQ(Probe(server->address(), "readiness"), "NOT_SERVING");
}

TEST(HealthServerTest, IsAliveWithoutBeingReady) {
  const auto server = Start(absl::Hours(1));
  server->Beat({false, false});
  EXPECT_EQ(Probe(server->address(), "liveness"), "SERVING");
  EXPECT_EQ(Probe(server->address(), ""), "SERVING");
}

TEST(HealthServerTest, ALoopThatStandsStillIsNeitherAliveNorReady) {
  const auto server = Start(absl::Milliseconds(100));
  server->Beat({true, true});
  EXPECT_EQ(AwaitProbe(server->address(), "liveness", "NOT_SERVING"),
            "NOT_SERVING");
  EXPECT_EQ(Probe(server->address(), "readiness"), "NOT_SERVING");
  EXPECT_EQ(Probe(server->address(), "startup"), "SERVING");
}

TEST(HealthServerTest, AnUnknownNameIsNotFound) {
  const auto server = Start(absl::Hours(1));
  EXPECT_EQ(Probe(server->address(), "live"), "NOT_FOUND");
}

TEST(HealthServerTest, AnAddressThatIsTakenIsRefused) {
  const auto server = Start(absl::Hours(1));
  HealthServer::Options options;
  options.address = server->address();
  EXPECT_THAT(HealthServer::Start(options),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("--health_address=" + server->address())));
}

}  // namespace
}  // namespace weft::service

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

std::unique_ptr<HealthServer> Start(const Pulse& pulse) {
  HealthServer::Options options;
  options.address = "127.0.0.1:0";
  options.pulse = &pulse;
  auto server = HealthServer::Start(options);
  EXPECT_OK(server.status());
  return server.ok() ? *std::move(server) : nullptr;
}

TEST(HealthServerTest, SaysWhatWasSetLast) {
  const Pulse pulse(RealClock(), absl::Hours(1));
  const auto server = Start(pulse);
  EXPECT_EQ(Probe(server->address(), "startup"), "NOT_SERVING");
  EXPECT_EQ(Probe(server->address(), "readiness"), "NOT_SERVING");
  server->Set({true, false});
  EXPECT_EQ(Probe(server->address(), "startup"), "SERVING");
  EXPECT_EQ(Probe(server->address(), "readiness"), "NOT_SERVING");
  server->Set({true, true});
  EXPECT_EQ(Probe(server->address(), "readiness"), "SERVING");
  server->Set({true, false});
  EXPECT_EQ(Probe(server->address(), "readiness"), "NOT_SERVING");
}

TEST(HealthServerTest, IsAliveWithoutBeingReady) {
  const Pulse pulse(RealClock(), absl::Hours(1));
  const auto server = Start(pulse);
  server->Set({false, false});
  EXPECT_EQ(Probe(server->address(), "liveness"), "SERVING");
  EXPECT_EQ(Probe(server->address(), ""), "SERVING");
}

TEST(HealthServerTest, ALoopThatStandsStillIsNeitherAliveNorReady) {
  FakeClock clock;
  const Pulse pulse(clock, absl::Milliseconds(100));
  const auto server = Start(pulse);
  server->Set({true, true});
  EXPECT_EQ(Probe(server->address(), "liveness"), "SERVING");
  clock.Advance(absl::Milliseconds(100));
  EXPECT_EQ(AwaitProbe(server->address(), "liveness", "NOT_SERVING"),
            "NOT_SERVING");
  EXPECT_EQ(Probe(server->address(), "readiness"), "NOT_SERVING");
  EXPECT_EQ(Probe(server->address(), "startup"), "SERVING");
}

TEST(HealthServerTest, AnUnknownNameIsNotFound) {
  const Pulse pulse(RealClock(), absl::Hours(1));
  const auto server = Start(pulse);
  EXPECT_EQ(Probe(server->address(), "live"), "NOT_FOUND");
}

TEST(HealthServerTest, AnAddressThatIsTakenIsRefused) {
  const Pulse pulse(RealClock(), absl::Hours(1));
  const auto server = Start(pulse);
  HealthServer::Options options;
  options.address = server->address();
  options.pulse = &pulse;
  EXPECT_THAT(HealthServer::Start(options),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("--health_address=" + server->address())));
}

}  // namespace
}  // namespace weft::service

#include "worker/service/pulse.h"

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::service {
namespace {

using ::testing::HasSubstr;

TEST(PulseTest, ALoopStandsStillThatHasNotBeatForItsPatience) {
  FakeClock clock;
  Pulse pulse(clock, absl::Seconds(10));
  clock.Advance(absl::Seconds(9));
  EXPECT_OK(pulse.Check());
  pulse.Beat();
  clock.Advance(absl::Milliseconds(9999));
  EXPECT_OK(pulse.Check());
  clock.Advance(absl::Milliseconds(2500));
  EXPECT_THAT(pulse.Check(), StatusIs(absl::StatusCode::kUnavailable,
                                      HasSubstr("stood still for 12s")));
  pulse.Beat();
  EXPECT_OK(pulse.Check());
}

}  // namespace
}  // namespace weft::service

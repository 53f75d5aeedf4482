#include "base/clock.h"

#include <cstdint>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

TEST(RealClockTest, TellsTheTimeOfDay) {
  const absl::Time before = absl::Now();
  const absl::Time now = RealClock().Now();
  EXPECT_GE(now, before - absl::Seconds(1));
  EXPECT_LE(now, absl::Now() + absl::Seconds(1));
}

TEST(RealClockTest, MonotonicTimeDoesNotGoBack) {
  int64_t last = RealClock().MonotonicNanos();
  for (int i = 0; i < 1000; ++i) {
    const int64_t next = RealClock().MonotonicNanos();
    EXPECT_GE(next, last);
    last = next;
  }
}

TEST(FakeClockTest, StandsStillUntilAdvanced) {
  FakeClock clock(absl::FromUnixSeconds(100));
  EXPECT_EQ(clock.Now(), absl::FromUnixSeconds(100));
  EXPECT_EQ(clock.MonotonicNanos(), clock.MonotonicNanos());
}

TEST(FakeClockTest, AdvancesBothTimes) {
  FakeClock clock(absl::FromUnixSeconds(100));
  const int64_t nanos = clock.MonotonicNanos();
  clock.Advance(absl::Milliseconds(1500));
  EXPECT_EQ(clock.Now(), absl::FromUnixMillis(101'500));
  EXPECT_EQ(clock.MonotonicNanos() - nanos, 1'500'000'000);
}

}  // namespace
}  // namespace weft

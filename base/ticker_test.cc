#include "base/ticker.h"

#include <atomic>

#include "absl/time/time.h"
#include "base/mutex.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

TEST(TickerTest, CallsAgainAndAgainUntilItIsGone) {
  std::atomic<int> calls{0};
  Notification thrice;
  {
    Ticker ticker(absl::Milliseconds(1), [&] {
      if (++calls == 3) thrice.Notify();
    });
    EXPECT_TRUE(thrice.WaitForNotificationWithTimeout(absl::Seconds(30)));
  }
  EXPECT_GE(calls, 3);
}

TEST(TickerTest, AnEndDoesNotWaitForThePeriod) {
  std::atomic<int> calls{0};
  {
    Ticker ticker(absl::Hours(1), [&] { ++calls; });
  }
  EXPECT_EQ(calls, 0);
}

}  // namespace
}  // namespace weft

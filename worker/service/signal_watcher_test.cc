#include "worker/service/signal_watcher.h"

#include <signal.h>
#include <unistd.h>

#include "base/mutex.h"
#include "gtest/gtest.h"

namespace weft::service {
namespace {

TEST(SignalWatcherTest, FirstSignalEndsInAnOrderlyWay) {
  SignalWatcher::BlockSignals();
  Notification terminated;
  SignalWatcher watcher(absl::Hours(1), [&] { terminated.Notify(); });
  kill(getpid(), SIGTERM);
  EXPECT_TRUE(terminated.WaitForNotificationWithTimeout(absl::Seconds(30)));
}

TEST(SignalWatcherTest, WatchEndsWithoutASignal) {
  SignalWatcher::BlockSignals();
  bool called = false;
  {
    SignalWatcher watcher(absl::Hours(1), [&] { called = true; });
  }
  EXPECT_FALSE(called);
}

// In a process of its own: exits are the point.
void EndSlowly(absl::Duration grace, int signals, absl::Duration together) {
  SignalWatcher::BlockSignals();
  Notification terminated;
  SignalWatcher watcher(
      grace, [&] { terminated.Notify(); }, together);
  for (int i = 0; i < signals; ++i) {
    kill(getpid(), SIGINT);
    terminated.WaitForNotification();
  }
  pause();
}

TEST(SignalWatcherDeathTest, ExitsWhenTheGraceIsOverOrASecondSignalComes) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const absl::Duration none = absl::ZeroDuration();
  EXPECT_EXIT(EndSlowly(absl::Milliseconds(1), 1, none),
              testing::ExitedWithCode(3), "could not end in time");
  EXPECT_EXIT(EndSlowly(absl::Hours(1), 2, none), testing::ExitedWithCode(3),
              "asked to end twice");
}

TEST(SignalWatcherDeathTest, ASecondSignalRightAfterTheFirstIsTheSameWish) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(EndSlowly(absl::Milliseconds(200), 2, absl::Hours(1)),
              testing::ExitedWithCode(3), "could not end in time");
}

}  // namespace
}  // namespace weft::service

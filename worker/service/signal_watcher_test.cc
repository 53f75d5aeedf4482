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
void EndSlowly(absl::Duration grace, int signals) {
  SignalWatcher::BlockSignals();
  Notification terminated;
  SignalWatcher watcher(grace, [&] { terminated.Notify(); });
  for (int i = 0; i < signals; ++i) {
    kill(getpid(), SIGINT);
    terminated.WaitForNotification();
  }
  pause();
}

TEST(SignalWatcherDeathTest, ExitsWhenTheGraceIsOverOrASecondSignalComes) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(EndSlowly(absl::Milliseconds(1), 1), testing::ExitedWithCode(3),
              "could not end in time");
  EXPECT_EXIT(EndSlowly(absl::Hours(1), 2), testing::ExitedWithCode(3),
              "asked to end twice");
}

}  // namespace
}  // namespace weft::service

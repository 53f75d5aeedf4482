#include "worker/exec/task_thread.h"

#include <vector>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::exec {
namespace {

using ::testing::ElementsAre;

TEST(TaskThreadTest, TheTaskIsDoneAsOftenAsItIsBegun) {
  int number = 0;
  std::vector<int> seen;
  TaskThread thread([&] {
    seen.push_back(number);
    return absl::OkStatus();
  });
  EXPECT_OK(thread.Await());
  for (number = 1; number <= 3; ++number) {
    thread.Begin();
    EXPECT_OK(thread.Await());
  }
  EXPECT_THAT(seen, ElementsAre(1, 2, 3));
}

TEST(TaskThreadTest, AwaitSaysWhatTheLastOneDid) {
  bool fails = true;
  TaskThread thread([&] {
    return fails ? absl::DataLossError("disk full") : absl::OkStatus();
  });
  thread.Begin();
  EXPECT_THAT(thread.Await(), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(thread.Await(), StatusIs(absl::StatusCode::kDataLoss));
  fails = false;
  thread.Begin();
  EXPECT_OK(thread.Await());
}

TEST(TaskThreadTest, TheEndWaitsForTheTask) {
  bool done = false;
  Notification begun;
  Notification go;
  {
    TaskThread thread([&] {
      begun.Notify();
      go.WaitForNotification();
      done = true;
      return absl::OkStatus();
    });
    thread.Begin();
    begun.WaitForNotification();
    go.Notify();
  }
  EXPECT_TRUE(done);
}

}  // namespace
}  // namespace weft::exec

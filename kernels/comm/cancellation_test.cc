#include "kernels/comm/cancellation.h"

#include <poll.h>

#include <atomic>
#include <thread>

#include "absl/status/status.h"
#include "base/status_matchers.h"
#include "gtest/gtest.h"

namespace weft::comm {
namespace {

bool IsReadable(int fd, int timeout_ms) {
  pollfd poll_fd = {fd, POLLIN, 0};
  return ::poll(&poll_fd, 1, timeout_ms) == 1;
}

class CountingListener : public CancellationListener {
 public:
  void OnCancelled() override { ++calls; }
  std::atomic<int> calls{0};
};

TEST(CancellationTest, FiresOnceAndKeepsTheFirstReason) {
  ASSERT_OK_AND_ASSIGN(auto token, Cancellation::Create());
  EXPECT_FALSE(token->cancelled());
  EXPECT_OK(token->reason());
  EXPECT_FALSE(IsReadable(token->event_fd(), 0));
  token->Cancel(absl::UnavailableError("worker 3 is lost"));
  token->Cancel(absl::CancelledError("later"));
  EXPECT_TRUE(token->cancelled());
  EXPECT_THAT(token->reason(),
              StatusIs(absl::StatusCode::kUnavailable, "worker 3 is lost"));
  EXPECT_TRUE(IsReadable(token->event_fd(), 0));
  EXPECT_TRUE(IsReadable(token->event_fd(), 0)) << "stays readable";
}

TEST(CancellationTest, WakesAThreadThatPolls) {
  ASSERT_OK_AND_ASSIGN(auto token, Cancellation::Create());
  std::atomic<bool> woke{false};
  std::thread sleeper(
      [&] { woke = IsReadable(token->event_fd(), /*timeout_ms=*/20000); });
  token->Cancel(absl::OkStatus());
  sleeper.join();
  EXPECT_TRUE(woke);
  EXPECT_THAT(token->reason(), StatusIs(absl::StatusCode::kCancelled));
}

TEST(CancellationTest, ListenersAreCalledUnlessRemoved) {
  ASSERT_OK_AND_ASSIGN(auto token, Cancellation::Create());
  CountingListener stays, goes, late;
  token->AddListener(&stays);
  token->AddListener(&goes);
  token->RemoveListener(&goes);
  token->Cancel(absl::OkStatus());
  token->AddListener(&late);
  EXPECT_EQ(stays.calls, 1);
  EXPECT_EQ(goes.calls, 0);
  EXPECT_EQ(late.calls, 1);
}

}  // namespace
}  // namespace weft::comm

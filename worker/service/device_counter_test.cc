#include "worker/service/device_counter.h"

#include <signal.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/service/supervisor.h"

namespace weft::service {
namespace {

using ::testing::HasSubstr;
using Count = absl::StatusOr<std::optional<int>>;

// Counts as a test says; nothing else of it is asked.
class CountingBackend : public Backend {
 public:
  explicit CountingBackend(std::function<Count()> count)
      : count_(std::move(count)) {}
  absl::string_view kind() const override { return "fake"; }
  std::vector<absl::string_view> transports() const override { return {}; }
  Count CountDevices() const override { return count_(); }
  absl::StatusOr<std::vector<LibraryVersion>> libraries() const override {
    return None();
  }
  absl::StatusOr<std::string> Model(int) const override { return None(); }
  absl::Status Check(int) const override { return None(); }
  bool returns_pages() const override { return false; }
  absl::StatusOr<std::unique_ptr<device::Device>> CreateDevice(
      int, const DeviceNeeds&) const override {
    return None();
  }
  absl::StatusOr<std::unique_ptr<Transport>> CreateTransport(
      const TransportOptions&) const override {
    return None();
  }

 private:
  static absl::Status None() { return absl::UnimplementedError("fake"); }

  const std::function<Count()> count_;
};

Count CountWith(
    const std::function<Count()>& count,
    const std::function<void()>& on_turn = [] {}) {
  Supervisor::BlockSignals();
  const CountingBackend backend(count);
  DeviceCounter counter(backend);
  return counter.Wait(on_turn);
}

TEST(DeviceCounterTest, SaysWhatTheBackendSays) {
  ASSERT_OK_AND_ASSIGN(const std::optional<int> eight,
                       CountWith([] { return 8; }));
  EXPECT_EQ(eight, 8);
  ASSERT_OK_AND_ASSIGN(const std::optional<int> any,
                       CountWith([] { return std::optional<int>(); }));
  EXPECT_EQ(any, std::nullopt);
  const std::string why(1000, 'x');
  EXPECT_THAT(CountWith([&] {
                return absl::FailedPreconditionError("no driver " + why);
              }),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("no driver " + why)));
}

// What a driver opens or leaves behind stays out of this process.
TEST(DeviceCounterTest, CountsInAnotherProcess) {
  ASSERT_OK_AND_ASSIGN(const std::optional<int> pid,
                       CountWith([] { return static_cast<int>(getpid()); }));
  EXPECT_NE(pid, getpid());
}

TEST(DeviceCounterTest, AProcessThatDiesIsAnError) {
  EXPECT_THAT(CountWith([]() -> Count { _exit(9); }),
              StatusIs(absl::StatusCode::kInternal,
                       HasSubstr("ended without an answer")));
}

TEST(DeviceCounterTest, TurnsAndCanBeToldToEndWhileADriverHangs) {
  int turns = 0;
  const Count count = CountWith(
      []() -> Count {
        while (true) pause();
      },
      [&] {
        if (++turns == 3) kill(getpid(), SIGTERM);
      });
  EXPECT_THAT(count, StatusIs(absl::StatusCode::kCancelled));
  EXPECT_EQ(turns, 3);
}

}  // namespace
}  // namespace weft::service

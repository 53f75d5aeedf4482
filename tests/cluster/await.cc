#include "tests/cluster/await.h"

#include "absl/time/clock.h"
#include "base/mutex.h"

namespace weft::testing {

bool Await(const std::function<bool()>& condition, absl::Duration timeout) {
  constexpr absl::Duration kPoll = absl::Milliseconds(10);
  const absl::Time deadline = absl::Now() + timeout;
  while (!condition()) {
    if (absl::Now() > deadline) return false;
    Notification().WaitForNotificationWithTimeout(kPoll);
  }
  return true;
}

}  // namespace weft::testing

#include "base/clock.h"

#include <chrono>
#include <cstdint>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/no_destructor.h"
#include "glog/logging.h"

namespace weft {
namespace {

class SystemClock : public Clock {
 public:
  absl::Time Now() const override { return absl::Now(); }
  int64_t MonotonicNanos() const override {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
};

}  // namespace

Clock& RealClock() {
  static NoDestructor<SystemClock> clock;
  return *clock;
}

void FakeClock::Advance(absl::Duration by) {
  CHECK(by >= absl::ZeroDuration()) << "a clock does not go back";
  nanos_.fetch_add(absl::ToInt64Nanoseconds(by));
}

}  // namespace weft

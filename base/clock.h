// Time as a dependency: code that needs time takes a Clock&, so that its tests
// decide what time it is.
#ifndef WEFT_BASE_CLOCK_H_
#define WEFT_BASE_CLOCK_H_

#include <atomic>
#include <cstdint>

#include "absl/time/time.h"

namespace weft {

// Thread-safe, as is every implementation.
class Clock {
 public:
  virtual ~Clock() = default;

  // Time of day: for logs, records and people. It may jump.
  virtual absl::Time Now() const = 0;

  // Nanoseconds since some fixed point: for durations and deadlines. It never
  // goes back. Values of different processes do not compare.
  virtual int64_t MonotonicNanos() const = 0;
};

// The clocks of the system.
Clock& RealClock();

// A clock that stands still until it is told to go on. Both of its times go on
// together.
class FakeClock : public Clock {
 public:
  FakeClock() : FakeClock(absl::FromUnixSeconds(1'000'000'000)) {}
  explicit FakeClock(absl::Time start) : start_(start) {}

  absl::Time Now() const override {
    return start_ + absl::Nanoseconds(MonotonicNanos());
  }
  int64_t MonotonicNanos() const override { return nanos_.load(); }

  // Requires: `by` is not negative.
  void Advance(absl::Duration by);

 private:
  const absl::Time start_;
  std::atomic<int64_t> nanos_{0};
};

}  // namespace weft

#endif  // WEFT_BASE_CLOCK_H_

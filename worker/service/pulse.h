// Pulse: whether a loop of this process turns.
#ifndef WEFT_WORKER_SERVICE_PULSE_H_
#define WEFT_WORKER_SERVICE_PULSE_H_

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"

namespace weft::service {

// The loop says Beat() each time it turns; others ask Check() whether it does.
// Thread-safe; neither waits.
class Pulse {
 public:
  // A loop that has not said Beat() for `patience` stands still. One that never
  // has counts from here on. `clock` outlives this.
  explicit Pulse(const Clock& clock,
                 absl::Duration patience = absl::Seconds(10));

  void Beat();

  // UNAVAILABLE, saying for how long, while the loop stands still.
  absl::Status Check() const;

  absl::Duration patience() const { return patience_; }

 private:
  const Clock& clock_;
  const absl::Duration patience_;
  std::atomic<int64_t> last_beat_ns_;
};

}  // namespace weft::service

#endif  // WEFT_WORKER_SERVICE_PULSE_H_

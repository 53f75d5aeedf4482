#include "worker/service/pulse.h"

#include "absl/strings/str_cat.h"

namespace weft::service {

Pulse::Pulse(const Clock& clock, absl::Duration patience)
    : clock_(clock),
      patience_(patience),
      last_beat_ns_(clock.MonotonicNanos()) {}

void Pulse::Beat() { last_beat_ns_ = clock_.MonotonicNanos(); }

absl::Status Pulse::Check() const {
  const auto silence =
      absl::Nanoseconds(clock_.MonotonicNanos() - last_beat_ns_.load());
  if (silence < patience_) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(
      "the worker's loop has stood still for ",
      absl::FormatDuration(absl::Trunc(silence, absl::Seconds(1)))));
}

}  // namespace weft::service

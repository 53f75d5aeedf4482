#include "client/progress.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/output.h"
#include "client/state_name.h"
#include "client/utf8.h"

namespace weft::client {
namespace {

// With it, a line of a long job just fits 80 columns.
constexpr int kBarCells = 8;
constexpr int64_t kRedrawNanos = 100'000'000;
// Weight of a new step in the means over recent steps.
constexpr double kNewest = 0.1;

std::string Bar(int64_t done, int64_t all) {
  const int64_t filled =
      all > 0 ? std::clamp<int64_t>(done * kBarCells / all, 0, kBarCells) : 0;
  return absl::StrCat(std::string(filled, '#'),
                      std::string(kBarCells - filled, '-'));
}

// A state, and why.
std::string Told(v1::JobState state, const std::string& message) {
  return absl::StrCat(StateName(state), message.empty() ? "" : ": ",
                      Printable(message));
}

}  // namespace

std::optional<double> HiddenShare(const v1::StepMetrics& metrics) {
  if (!(metrics.ep_seconds() > 0)) return std::nullopt;
  return std::clamp(1 - metrics.ep_exposed_seconds() / metrics.ep_seconds(),
                    0.0, 1.0);
}

void ProgressTracker::Observe(const v1::WatchJobResponse& update) {
  switch (update.update_case()) {
    case v1::WatchJobResponse::kSnapshot:
      state_ = update.snapshot().state();
      message_ = update.snapshot().message();
      steps_ = update.snapshot().spec().steps();
      if (update.snapshot().last_step().step() > last_.step()) {
        ObserveStep(update.snapshot().last_step());
      }
      break;
    case v1::WatchJobResponse::kEvent:
      state_ = update.event().state();
      message_ = update.event().message();
      break;
    case v1::WatchJobResponse::kStep:
      ObserveStep(update.step());
      break;
    default:
      break;
  }
}

void ProgressTracker::ObserveStep(const v1::StepMetrics& metrics) {
  const double weight = last_.step() == 0 ? 1 : kNewest;
  const auto mix = [weight](double* mean, double value) {
    *mean += weight * (value - *mean);
  };
  mix(&step_seconds_, metrics.step_seconds());
  mix(&ep_seconds_, metrics.ep_seconds());
  mix(&ep_exposed_seconds_, metrics.ep_exposed_seconds());
  last_ = metrics;
}

std::string ProgressTracker::Line() const {
  if (last_.step() == 0) {
    return Told(state_, message_);
  }
  std::string line =
      absl::StrFormat("step %d/%d [%s]  loss %.3f nats", last_.step(), steps_,
                      Bar(last_.step(), steps_), last_.loss());
  if (step_seconds_ > 0) {
    absl::StrAppend(
        &line, "  ", Human(static_cast<double>(last_.tokens()) / step_seconds_),
        " tokens/s  ETA ",
        HumanSeconds(step_seconds_ * static_cast<double>(std::max<int64_t>(
                                         0, steps_ - last_.step()))));
  }
  v1::StepMetrics means;
  means.set_ep_seconds(ep_seconds_);
  means.set_ep_exposed_seconds(ep_exposed_seconds_);
  const auto hidden = HiddenShare(means);
  if (hidden.has_value()) {
    absl::StrAppendFormat(&line, "  hidden %.0f%%", 100 * *hidden);
  }
  return line;
}

void ProgressPrinter::Observe(const v1::WatchJobResponse& update) {
  tracker_.Observe(update);
  if (update.has_eval()) {
    WriteLine(
        absl::StrFormat("validation after step %d: loss %.3f nats a token",
                        update.eval().step(), update.eval().loss()));
    return;
  }
  if (update.has_step()) {
    if (IsDue()) DrawLine();
    return;
  }
  if (HasEnded(tracker_.state())) {
    EraseLine();
    return;
  }
  // A snapshot tells a state that an event may have told before.
  const bool is_told = tracker_.state() == shown_state_;
  if (is_told && (!update.has_event() || update.event().message().empty())) {
    return;
  }
  shown_state_ = tracker_.state();
  const std::string& message = update.has_event() ? update.event().message()
                                                  : update.snapshot().message();
  WriteLine(Told(tracker_.state(), message));
}

bool ProgressPrinter::IsDue() const {
  if (shown_nanos_ == 0 || tracker_.is_last_step()) return true;
  const int64_t waited = clock_.MonotonicNanos() - shown_nanos_;
  if (options_.is_terminal) return waited >= kRedrawNanos;
  if (options_.every_steps > 0 &&
      tracker_.step() - shown_step_ >= options_.every_steps) {
    return true;
  }
  return static_cast<double>(waited) >= options_.every_seconds * 1e9;
}

void ProgressPrinter::DrawLine() {
  shown_step_ = tracker_.step();
  shown_nanos_ = std::max<int64_t>(1, clock_.MonotonicNanos());
  if (!options_.is_terminal) {
    WriteLine(tracker_.Line());
    return;
  }
  // A line as long as the terminal is wide would wrap and not be redrawn.
  const size_t columns = std::max(1, options_.columns - 1);
  out_ << "\r\x1b[K" << tracker_.Line().substr(0, columns) << std::flush;
  is_line_open_ = true;
}

void ProgressPrinter::WriteLine(const std::string& text) {
  if (is_line_open_) out_ << "\r\x1b[K";
  out_ << text << "\n";
  if (is_line_open_) {
    const size_t columns = std::max(1, options_.columns - 1);
    out_ << tracker_.Line().substr(0, columns);
  }
  out_.flush();
}

void ProgressPrinter::EraseLine() {
  if (is_line_open_) out_ << "\r\x1b[K" << std::flush;
  is_line_open_ = false;
}

void ProgressPrinter::EndLine() {
  if (is_line_open_) out_ << std::endl;
  is_line_open_ = false;
}

}  // namespace weft::client

// How a running job looks from outside.
#ifndef WEFT_CLIENT_PROGRESS_H_
#define WEFT_CLIENT_PROGRESS_H_

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>

#include "base/clock.h"
#include "weft/v1/job_service.pb.h"

namespace weft::client {

// Share of all-to-all time in which compute ran, 0 to 1; empty when there was
// no such time.
std::optional<double> HiddenShare(const v1::StepMetrics& metrics);

// Follows a job by the messages of its watch.
// Thread-compatible.
class ProgressTracker {
 public:
  void Observe(const v1::WatchJobResponse& update);

  // "step 120/600 [#-------]  loss 2.314 nats  12.4k tokens/s
  // ETA 1:05  hidden 83%"; before the first step, the state. The loss is of a
  // token.
  std::string Line() const;

  v1::JobState state() const { return state_; }
  int64_t step() const { return last_.step(); }
  bool is_last_step() const { return steps_ > 0 && last_.step() >= steps_; }

 private:
  void ObserveStep(const v1::StepMetrics& metrics);

  v1::JobState state_ = v1::JOB_STATE_UNSPECIFIED;
  std::string message_;
  int64_t steps_ = 0;  // of the whole job
  v1::StepMetrics last_;
  // Means over recent steps, of which the newest count most.
  double step_seconds_ = 0;
  double ep_seconds_ = 0;
  double ep_exposed_seconds_ = 0;
};

// Writes progress while it happens. On a terminal one line is redrawn, at most
// ten times a second; elsewhere a line is written now and then. Changes of
// state and validations get lines of their own, but for the end of the job: its
// progress is erased, as who follows it has more to say of the end.
// Thread-compatible.
class ProgressPrinter {
 public:
  struct Options {
    bool is_terminal = false;
    int columns = 80;
    // Elsewhere: a line after so many steps or seconds, whichever comes first;
    // 0 steps means by time only.
    int64_t every_steps = 0;
    double every_seconds = 10;
  };

  // Requires: `out` and `clock` outlive the printer.
  ProgressPrinter(const Options& options, std::ostream& out, Clock& clock)
      : options_(options), out_(out), clock_(clock) {}
  // Leaves the cursor on a line of its own.
  ~ProgressPrinter() { EndLine(); }

  void Observe(const v1::WatchJobResponse& update);

 private:
  bool IsDue() const;
  void DrawLine();
  // Writes a line that stays.
  void WriteLine(const std::string& text);
  void EraseLine();
  void EndLine();

  const Options options_;
  std::ostream& out_;
  Clock& clock_;
  ProgressTracker tracker_;
  v1::JobState shown_state_ = v1::JOB_STATE_UNSPECIFIED;
  int64_t shown_step_ = 0;
  int64_t shown_nanos_ = 0;
  bool is_line_open_ = false;  // on a terminal
};

}  // namespace weft::client

#endif  // WEFT_CLIENT_PROGRESS_H_

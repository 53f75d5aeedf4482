// Writes down every change of a job, everywhere it must be known: in the job,
// the store, the watchers' log, the metrics.
#ifndef WEFT_COORDINATOR_CORE_JOB_LEDGER_H_
#define WEFT_COORDINATOR_CORE_JOB_LEDGER_H_

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/clock.h"
#include "coordinator/core/job_observer.h"
#include "coordinator/core/outbox.h"
#include "coordinator/core/watch_hub.h"
#include "coordinator/store/store.h"
#include "weft/v1/job_service.pb.h"

namespace weft::coordinator {

// Guarantees: every change raises the job's revision by one and makes one
// update. A store that fails does not hold up a job that runs: what it missed
// is written when it works again.
// Not thread-safe.
class JobLedger {
 public:
  struct Options {
    Clock* clock = nullptr;
    Store* store = nullptr;
    WatchHub* hub = nullptr;
    Outbox* outbox = nullptr;         // wakes the watchers
    JobObserver* observer = nullptr;  // may be null
  };

  explicit JobLedger(Options options) : options_(options) {}

  // Adds a queued job. An error of the store means that there is no such job.
  absl::Status Create(v1::Job* job, absl::string_view request_id,
                      absl::string_view message);
  // Moves a job to another state. A move that is not allowed is a fault of the
  // caller: it is logged and not made.
  void Move(v1::Job* job, v1::JobState state, absl::string_view message);
  // Changes what is said of a job in its state; nothing when it is said
  // already.
  void Say(v1::Job* job, absl::string_view message);
  void AddStep(v1::Job* job, const v1::StepMetrics& step);
  void AddEval(v1::Job* job, const v1::EvalMetrics& eval);

  // The job as it is when the store missed its last change; null when the store
  // is up to date. Valid until the next change.
  const v1::Job* FindUnsaved(absl::string_view job_id) const;
  // Tries to write what the store missed.
  void RetryUnsaved();

 private:
  struct Unsaved {
    v1::Job job;
    std::vector<v1::WatchJobResponse> updates;
  };

  // The job has changed, by `update` but for its revision.
  void Note(v1::Job* job, v1::WatchJobResponse update);
  void Publish(const v1::Job& job, const v1::WatchJobResponse& update);
  v1::WatchJobResponse EventOf(const v1::Job& job) const;

  const Options options_;
  std::map<std::string, Unsaved, std::less<>> unsaved_;  // by job id
};

}  // namespace weft::coordinator

#endif  // WEFT_COORDINATOR_CORE_JOB_LEDGER_H_

// Lets any number of readers follow jobs.
//
// Each job has one log of its latest updates. A reader is a place in that log,
// not a queue of its own: a reader that falls behind by more than the log keeps
// gets the job as it is now and goes on from there. So slow readers cost
// nothing.
//
//   auto watch = hub.Open(job_id, after_revision, on_news);
//   while (true) {
//     v1::WatchJobResponse message;
//     switch ((*watch)->Next(&message)) {
//       case Watch::kMessage: ...; break;
//       case Watch::kWait: return;  // on_news will be called once
//       case Watch::kEnd: ...
//     }
//   }
#ifndef WEFT_COORDINATOR_CORE_WATCH_HUB_H_
#define WEFT_COORDINATOR_CORE_WATCH_HUB_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/attributes.h"
#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "weft/v1/job_service.pb.h"

namespace weft::coordinator {

class JobLog;

// A reader of one job. Its messages are: with `after_revision` 0, the job as it
// is; then the updates after that, in order of revision; when the job has
// ended, the job as it is once more, then the end.
//
// One thread at a time calls Next(). Destroying it takes back `on_news`, unless
// it is being called right now.
class Watch {
 public:
  enum Result { kMessage, kWait, kEnd };

  ~Watch();
  // kWait: there is nothing now, and `on_news` will be called once when there
  // is.
  Result Next(v1::WatchJobResponse* message);

 private:
  friend class WatchHub;
  Watch(std::shared_ptr<JobLog> log, int64_t after_revision,
        bool snapshot_first, std::function<void()> on_news);

  const std::shared_ptr<JobLog> log_;  // shared with the hub, which may drop it
  const std::shared_ptr<const std::function<void()>> on_news_;
  int64_t revision_;
  bool snapshot_next_;
  bool ended_ = false;
};

// Thread-safe.
class WatchHub {
 public:
  struct Options {
    // Updates kept of each job.
    size_t log_size = 1024;
    // Jobs that have ended whose logs are kept.
    size_t ended_jobs = 64;
  };

  explicit WatchHub(Options options) : options_(options) {}

  // Notes that `job` has changed by `update`, whose revision is the job's.
  // Returns what calls the readers that wait; call it without locks.
  ABSL_MUST_USE_RESULT std::function<void()> Append(
      const v1::Job& job, const v1::WatchJobResponse& update);

  // Notes a job and what is known of its past, for a job from before a restart.
  void Restore(const v1::Job& job,
               absl::Span<const v1::WatchJobResponse> updates);

  // NOT_FOUND when the job is unknown or its log is gone; OUT_OF_RANGE when
  // `after_revision` is older than the log or newer than the job.
  absl::StatusOr<std::unique_ptr<Watch>> Open(absl::string_view job_id,
                                              int64_t after_revision,
                                              std::function<void()> on_news);

 private:
  std::shared_ptr<JobLog> GetOrAddLocked(const v1::Job& job)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  Mutex mu_;  // taken before a JobLog's
  std::map<std::string, std::shared_ptr<JobLog>> logs_ ABSL_GUARDED_BY(mu_);
  std::deque<std::string> ended_ ABSL_GUARDED_BY(mu_);  // oldest first
};

}  // namespace weft::coordinator

#endif  // WEFT_COORDINATOR_CORE_WATCH_HUB_H_

// What the coordinator remembers across restarts: jobs, and what happened to
// them.
#ifndef WEFT_COORDINATOR_STORE_STORE_H_
#define WEFT_COORDINATOR_STORE_STORE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "weft/v1/job_service.pb.h"

namespace weft::coordinator {

// Jobs, newest first.
struct JobPage {
  std::vector<v1::Job> jobs;
  // Where the next page begins; 0 when there are no more.
  int64_t next = 0;
};

// Updates of a job that are kept, the latest ones: a job of millions of steps
// must not fill the disk.
inline constexpr int kUpdatesKept = 4096;

// Guarantees: a call that returns OK has happened completely, one that returns
// an error not at all, also across a crash. Reads see all writes that have
// returned. Errors other than those named: UNAVAILABLE when the store is busy
// or full and a retry may help, DATA_LOSS when its content is broken.
// Thread-safe.
class Store {
 public:
  virtual ~Store() = default;

  // Adds a job. `request_id` is remembered unless it is empty. ALREADY_EXISTS
  // when the job's id or the request id is taken.
  virtual absl::Status CreateJob(const v1::Job& job,
                                 absl::string_view request_id) = 0;

  // Replaces a job and adds `updates`, what led to it, to its history.
  // NOT_FOUND.
  virtual absl::Status UpdateJob(
      const v1::Job& job, absl::Span<const v1::WatchJobResponse> updates) = 0;

  // NOT_FOUND.
  virtual absl::StatusOr<v1::Job> GetJob(absl::string_view job_id) = 0;

  // The job submitted with `request_id`; NOT_FOUND.
  virtual absl::StatusOr<v1::Job> FindByRequestId(
      absl::string_view request_id) = 0;

  // At most `limit` jobs, without those whose record is broken, from `begin`, a
  // JobPage::next, or 0 for the newest.
  virtual absl::StatusOr<JobPage> ListJobs(int limit, int64_t begin) = 0;

  // Jobs in a state that is not final, oldest first.
  virtual absl::StatusOr<std::vector<v1::Job>> UnfinishedJobs() = 0;

  // The latest `limit` updates of a job, or kUpdatesKept when that is less, in
  // order of revision.
  virtual absl::StatusOr<std::vector<v1::WatchJobResponse>> LatestUpdates(
      absl::string_view job_id, int limit) = 0;

  // 1, 2, 3, … over the life of the store.
  virtual absl::StatusOr<int64_t> NextEpoch() = 0;
};

}  // namespace weft::coordinator

#endif  // WEFT_COORDINATOR_STORE_STORE_H_

// A store that forgets when its process ends.
#ifndef WEFT_COORDINATOR_STORE_MEMORY_STORE_H_
#define WEFT_COORDINATOR_STORE_MEMORY_STORE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "coordinator/store/store.h"
#include "weft/v1/job_service.pb.h"

namespace weft::coordinator {

// Thread-safe.
class MemoryStore : public Store {
 public:
  absl::Status CreateJob(const v1::Job& job,
                         absl::string_view request_id) override;
  absl::Status UpdateJob(
      const v1::Job& job,
      absl::Span<const v1::WatchJobResponse> updates) override;
  absl::StatusOr<v1::Job> GetJob(absl::string_view job_id) override;
  absl::StatusOr<v1::Job> FindByRequestId(
      absl::string_view request_id) override;
  absl::StatusOr<JobPage> ListJobs(int limit, int64_t begin) override;
  absl::StatusOr<std::vector<v1::Job>> UnfinishedJobs() override;
  absl::StatusOr<std::vector<v1::WatchJobResponse>> LatestUpdates(
      absl::string_view job_id, int limit) override;
  absl::StatusOr<int64_t> NextEpoch() override;

  // Every later write fails with `error` until it is OK again.
  void FailWritesForTest(absl::Status error);

 private:
  struct Row {
    v1::Job job;
    std::vector<v1::WatchJobResponse> updates;
  };

  Mutex mu_;
  std::map<int64_t, Row> rows_ ABSL_GUARDED_BY(mu_);  // by age, from 1
  std::map<std::string, int64_t> by_id_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, int64_t> by_request_id_ ABSL_GUARDED_BY(mu_);
  int64_t epoch_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Status write_error_ ABSL_GUARDED_BY(mu_);
};

}  // namespace weft::coordinator

#endif  // WEFT_COORDINATOR_STORE_MEMORY_STORE_H_

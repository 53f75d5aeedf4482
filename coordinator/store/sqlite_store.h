// A store in one SQLite file.
//
//   jobs(age, id, request_id, finished, record)   record: weft.v1.Job
//   updates(job_id, revision, record)             weft.v1.WatchJobResponse
//   meta(key, value)                              schema_version, epoch
//
// The file is in WAL mode. A change of a job's state is on disk when UpdateJob
// returns; step metrics may lag behind by the last moments before a power cut,
// but not behind a killed process. A lock file beside it keeps a second
// coordinator out.
#ifndef WEFT_COORDINATOR_STORE_SQLITE_STORE_H_
#define WEFT_COORDINATOR_STORE_SQLITE_STORE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "coordinator/store/sqlite.h"
#include "coordinator/store/store.h"
#include "weft/v1/job_service.pb.h"

namespace weft::coordinator {

// Thread-safe.
class SqliteStore : public Store {
 public:
  // Opens the store at `path`, and creates it when it does not exist; its
  // folder must. FAILED_PRECONDITION when another process has it open, or a
  // newer version wrote it.
  static absl::StatusOr<std::unique_ptr<SqliteStore>> Open(
      const std::string& path);
  ~SqliteStore() override;

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

 private:
  SqliteStore(const std::string& path, int lock_fd,
              std::unique_ptr<SqliteDatabase> database);

  absl::Status Migrate() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status WriteUpdate(const v1::Job& job,
                           absl::Span<const v1::WatchJobResponse> updates)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Mutex mu_;
  const std::string path_;
  const int lock_fd_;
  const std::unique_ptr<SqliteDatabase> database_ ABSL_PT_GUARDED_BY(mu_);
};

}  // namespace weft::coordinator

#endif  // WEFT_COORDINATOR_STORE_SQLITE_STORE_H_

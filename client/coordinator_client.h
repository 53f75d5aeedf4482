// Calls the coordinator, with a deadline on every call and retries where the
// coordinator is away for a moment.
#ifndef WEFT_CLIENT_COORDINATOR_CLIENT_H_
#define WEFT_CLIENT_COORDINATOR_CLIENT_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "weft/v1/cluster_service.pb.h"
#include "weft/v1/job_service.pb.h"

namespace weft::client {

// Errors carry the code and message of the coordinator, and the details of a
// google.rpc.Status as payloads by their type URL. UNAVAILABLE, after a few
// tries, when the coordinator cannot be reached.
// Thread-safe.
class CoordinatorClient {
 public:
  struct Options {
    std::string address;  // "host:port"
    absl::Duration call_timeout = absl::Seconds(5);
    // Of calls that compile and verify a plan: SubmitJob, ValidateJob, GetPlan.
    // The largest legal one takes half a minute on an idle core.
    absl::Duration plan_timeout = absl::Minutes(5);
    int tries = 4;
    absl::Duration first_backoff = absl::Milliseconds(200);  // then doubles
  };

  static std::unique_ptr<CoordinatorClient> Create(Options options);
  virtual ~CoordinatorClient() = default;

  // Fills in a request_id when there is none, so that a retry cannot submit the
  // job twice.
  virtual absl::StatusOr<v1::SubmitJobResponse> SubmitJob(
      v1::SubmitJobRequest request) = 0;
  virtual absl::StatusOr<v1::ValidateJobResponse> ValidateJob(
      const v1::ValidateJobRequest& request) = 0;
  virtual absl::StatusOr<v1::GetJobResponse> GetJob(
      const v1::GetJobRequest& request) = 0;
  virtual absl::StatusOr<v1::ListJobsResponse> ListJobs(
      const v1::ListJobsRequest& request) = 0;
  virtual absl::StatusOr<v1::CancelJobResponse> CancelJob(
      const v1::CancelJobRequest& request) = 0;
  virtual absl::StatusOr<v1::GetPlanResponse> GetPlan(
      const v1::GetPlanRequest& request) = 0;
  virtual absl::StatusOr<v1::ListRulesResponse> ListRules() = 0;
  virtual absl::StatusOr<v1::ListWorkersResponse> ListWorkers() = 0;
  virtual absl::StatusOr<v1::GetClusterInfoResponse> GetClusterInfo() = 0;

  // Gives each message of a watch to `on_message` until the stream ends, which
  // is OK; it is not retried. DEADLINE_EXCEEDED at `deadline`.
  virtual absl::Status WatchJob(
      const v1::WatchJobRequest& request, absl::Time deadline,
      const std::function<void(const v1::WatchJobResponse&)>& on_message) = 0;
};

// A random UUID, version 4.
std::string NewRequestId();

}  // namespace weft::client

#endif  // WEFT_CLIENT_COORDINATOR_CLIENT_H_

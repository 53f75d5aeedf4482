// A coordinator that answers as a test tells it to.
#ifndef WEFT_CLIENT_FAKE_COORDINATOR_H_
#define WEFT_CLIENT_FAKE_COORDINATOR_H_

#include <memory>
#include <string>
#include <vector>

#include "weft/v1/cluster_service.pb.h"
#include "weft/v1/job_service.pb.h"

namespace weft::client {

// Serves JobService and ClusterService on a port of this machine.
//
// Jobs: "moe-1" runs and then ends as `end_state`; "ghost" is unknown to all
// calls. A job named "illegal" is refused with two violations.
class FakeCoordinator {
 public:
  struct Script {
    v1::JobState end_state = v1::JOB_STATE_SUCCEEDED;
    int steps = 3;
    // The watch stays silent after its steps, for so long.
    int silent_seconds = 0;
    // So many calls of SubmitJob fail first, with UNAVAILABLE, after having
    // stored the job.
    int unavailable_submits = 0;
    // After those SubmitJob stores the job and fails with DEADLINE_EXCEEDED.
    bool is_submit_late = false;
    int jobs = 2;  // ListJobs
    std::string failure = "rank 2 is lost";
    std::string artifacts = "/runs/moe-1";  // of jobs that have ended
  };

  explicit FakeCoordinator(const Script& script);
  ~FakeCoordinator();

  std::string address() const;

  // Every request of SubmitJob so far.
  std::vector<v1::SubmitJobRequest> submits() const;
  // The last request of CancelJob.
  v1::CancelJobRequest cancel() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft::client

#endif  // WEFT_CLIENT_FAKE_COORDINATOR_H_

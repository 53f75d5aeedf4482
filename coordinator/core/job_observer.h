// Who wants to know what happens, for metrics.
#ifndef WEFT_COORDINATOR_CORE_JOB_OBSERVER_H_
#define WEFT_COORDINATOR_CORE_JOB_OBSERVER_H_

#include "absl/strings/string_view.h"
#include "weft/v1/job_service.pb.h"

namespace weft::coordinator {

// Called with locks held: implementations return at once and call nothing of
// the coordinator.
class JobObserver {
 public:
  virtual ~JobObserver() = default;

  // The job has a new state, or is new.
  virtual void OnJobState(const v1::Job& job) = 0;
  virtual void OnStep(const v1::Job& job, const v1::StepMetrics& step) = 0;
  virtual void OnEval(const v1::Job& job, const v1::EvalMetrics& eval) = 0;
  // The job ended so long ago that nobody looks at it any more.
  virtual void OnJobForgotten(absl::string_view job_id) = 0;

  // A worker is attached, or not any more.
  virtual void OnWorker(absl::string_view worker_id, bool is_up) = 0;
  virtual void OnWorkerForgotten(absl::string_view worker_id) = 0;

  // Jobs that wait for workers.
  virtual void OnQueue(int jobs) = 0;
};

}  // namespace weft::coordinator

#endif  // WEFT_COORDINATOR_CORE_JOB_OBSERVER_H_

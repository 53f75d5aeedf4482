// Who wants to know what happens, for metrics and records.
#ifndef WEFT_COORDINATOR_CORE_JOB_OBSERVER_H_
#define WEFT_COORDINATOR_CORE_JOB_OBSERVER_H_

#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "weft/v1/cluster_service.pb.h"
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
  virtual void OnWorker(const v1::Worker& worker) = 0;
  // The worker was lost long ago, or has left. It may come back.
  virtual void OnWorkerForgotten(absl::string_view worker_id) = 0;

  // Jobs that wait for workers.
  virtual void OnQueue(int jobs) = 0;
};

// Tells each of several observers, in order. They outlive this.
class JobObservers : public JobObserver {
 public:
  explicit JobObservers(std::vector<JobObserver*> observers)
      : observers_(std::move(observers)) {}

  void OnJobState(const v1::Job& job) override {
    for (JobObserver* observer : observers_) observer->OnJobState(job);
  }
  void OnStep(const v1::Job& job, const v1::StepMetrics& step) override {
    for (JobObserver* observer : observers_) observer->OnStep(job, step);
  }
  void OnEval(const v1::Job& job, const v1::EvalMetrics& eval) override {
    for (JobObserver* observer : observers_) observer->OnEval(job, eval);
  }
  void OnJobForgotten(absl::string_view job_id) override {
    for (JobObserver* observer : observers_) observer->OnJobForgotten(job_id);
  }
  void OnWorker(const v1::Worker& worker) override {
    for (JobObserver* observer : observers_) observer->OnWorker(worker);
  }
  void OnWorkerForgotten(absl::string_view worker_id) override {
    for (JobObserver* observer : observers_) {
      observer->OnWorkerForgotten(worker_id);
    }
  }
  void OnQueue(int jobs) override {
    for (JobObserver* observer : observers_) observer->OnQueue(jobs);
  }

 private:
  const std::vector<JobObserver*> observers_;
};

}  // namespace weft::coordinator

#endif  // WEFT_COORDINATOR_CORE_JOB_OBSERVER_H_

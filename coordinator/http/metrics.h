// All metrics of the coordinator.
//
// One declaration a metric, below; docs/metrics.md is made of them. They tell
// of whole jobs; what one rank sees are the worker's, weft_rank_….
//
// Series of a job carry its id as `job_id` (`job` is Prometheus' own name for a
// group of targets) and go away some time after the job has ended, series of a
// worker some time after it was lost, or at once when it was stopped.
#ifndef WEFT_COORDINATOR_HTTP_METRICS_H_
#define WEFT_COORDINATOR_HTTP_METRICS_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/clock.h"
#include "base/metric.h"
#include "coordinator/core/job_observer.h"
#include "monitoring/metric_set.h"
#include "weft/v1/cluster_service.pb.h"
#include "weft/v1/job_service.pb.h"

namespace weft::coordinator {

inline constexpr MetricSpec kBuildInfo = {
    "weft_build_info", MetricType::kGauge, "", "version",
    "Constant 1; the labels describe the coordinator"};

// The state of jobs.
inline constexpr MetricSpec kQueuedJobs = {"weft_queued_jobs",
                                           MetricType::kGauge, "", "",
                                           "Jobs that wait for workers"};
inline constexpr MetricSpec kOldestQueued = {
    "weft_oldest_queued_job_timestamp_seconds", MetricType::kGauge, "seconds",
    "",
    "When the job that has waited longest for workers was submitted, since "
    "1970; absent while none waits"};
inline constexpr MetricSpec kJobState = {
    "weft_job_state", MetricType::kGauge, "", "job_id,state",
    "1 for the state the job is in, 0 for the others"};
inline constexpr MetricSpec kJobStep = {"weft_job_step", MetricType::kGauge, "",
                                        "job_id", "Last finished step"};
inline constexpr MetricSpec kJobTargetSteps = {
    "weft_job_target_steps", MetricType::kGauge, "", "job_id",
    "Steps after which the job has succeeded"};
inline constexpr MetricSpec kJobProgress = {
    "weft_job_last_progress_timestamp_seconds", MetricType::kGauge, "seconds",
    "job_id",
    "When the job last finished a step or a validation or changed its state, "
    "since 1970"};

// What a job learns.
inline constexpr MetricSpec kLoss = {
    "weft_loss", MetricType::kGauge, "nats", "job_id",
    "Mean next-token training loss of the last step"};
inline constexpr MetricSpec kObjective = {
    "weft_objective", MetricType::kGauge, "nats", "job_id",
    "What the last step minimised: the loss and the weighted router losses"};
inline constexpr MetricSpec kRouterLoss = {
    "weft_router_loss", MetricType::kGauge, "", "job_id,layer,loss",
    "A loss of a layer's router in the last step, without its coefficient"};
inline constexpr MetricSpec kEvalLoss = {
    "weft_eval_loss", MetricType::kGauge, "nats", "job_id",
    "Mean next-token loss of the last validation"};
inline constexpr MetricSpec kGradNorm = {
    "weft_grad_norm", MetricType::kGauge, "", "job_id",
    "Global gradient norm of the last step before clipping"};
inline constexpr MetricSpec kLearningRate = {"weft_learning_rate",
                                             MetricType::kGauge, "", "job_id",
                                             "Learning rate of the last step"};
inline constexpr MetricSpec kImbalance = {
    "weft_expert_imbalance_ratio", MetricType::kGauge, "ratio", "job_id,layer",
    "Rows of the layer's fullest expert in the last step over the mean of its "
    "experts; 1 is balanced"};

// How fast it goes. The sums of a job divide into each other: tokens over
// seconds of weft_step_duration_seconds are its throughput.
inline constexpr MetricSpec kSteps = {"weft_steps_total", MetricType::kCounter,
                                      "", "job_id", "Finished steps"};
inline constexpr MetricSpec kTokens = {
    "weft_tokens_total", MetricType::kCounter, "", "job_id",
    "Tokens of the finished steps over all ranks"};
inline constexpr MetricSpec kStepSeconds = {
    "weft_step_duration_seconds",
    MetricType::kHistogram,
    "seconds",
    "job_id",
    "Wall time of a step on the slowest rank",
    kStepSecondsBuckets};
inline constexpr MetricSpec kUtilization = {
    "weft_model_flops_utilization_ratio", MetricType::kGauge, "ratio", "job_id",
    "Model FLOP/s of the last step over the peak of its devices; absent where "
    "a peak is not known"};

// `cause` is ep (all-to-alls of experts), gather (of weights) or reduce (of
// gradients). Where a gather and a reduction run at once, the gather counts.
inline constexpr MetricSpec kExposedSeconds = {
    "weft_exposed_comm_seconds_total", MetricType::kCounter, "seconds",
    "job_id,cause",
    "Communication time without a compute op beside it, mean over ranks"};
inline constexpr MetricSpec kHiddenSeconds = {
    "weft_hidden_comm_seconds_total", MetricType::kCounter, "seconds",
    "job_id,cause",
    "Communication time with a compute op beside it, mean over ranks"};
inline constexpr MetricSpec kCommBytes = {
    "weft_comm_bytes_total", MetricType::kCounter, "bytes", "job_id,cause",
    "Payload bytes that ranks sent to other ranks; of ep"};

// Memory.
inline constexpr MetricSpec kMemory = {
    "weft_device_memory_bytes", MetricType::kGauge, "bytes", "job_id,category",
    "Device memory by what it holds, of the rank with most"};
inline constexpr MetricSpec kPeakBytes = {
    "weft_peak_device_memory_bytes", MetricType::kGauge, "bytes", "job_id",
    "Largest number of device bytes live at once on a rank in the last step"};

// The cluster.
inline constexpr MetricSpec kWorkerUp = {
    "weft_worker_up", MetricType::kGauge, "", "worker",
    "1 while the worker is attached, 0 after it was lost; absent after it was "
    "stopped"};
inline constexpr MetricSpec kWorkerRestarts = {
    "weft_worker_restarts_total", MetricType::kCounter, "", "worker",
    "Times the worker came back as another process"};
inline constexpr MetricSpec kRecordErrors = {
    "weft_record_errors_total", MetricType::kCounter, "", "",
    "Records of jobs, in step logs and event files, that could not be written"};

// Every metric above, in the same order. A coordinator shows them and
// monitoring::ProcessMetrics().
absl::Span<const MetricSpec> AllMetrics();

// Keeps the metrics up to date. Thread-safe. A scrape sees all that a call
// below changes, or nothing of it.
class Metrics : public JobObserver {
 public:
  // `clock` outlives this.
  Metrics(const std::string& version, const Clock& clock);

  void OnJobState(const v1::Job& job) override;
  void OnStep(const v1::Job& job, const v1::StepMetrics& step) override;
  void OnEval(const v1::Job& job, const v1::EvalMetrics& eval) override;
  void OnJobForgotten(absl::string_view job_id) override;
  void OnWorker(const v1::Worker& worker) override;
  void OnWorkerForgotten(absl::string_view worker_id) override;
  void OnQueue(int jobs) override;

  void CountRecordError();

  // In the Prometheus text format, version 0.0.4.
  std::string ToText() const;

 private:
  // What is known of a job beside its series.
  struct JobNotes {
    std::optional<double> queued_since;  // submitted, seconds since 1970; waits
    // What follows from the spec; set by the first step.
    bool has_facts = false;
    std::vector<int> moe_layers;  // with experts, ascending, depths behind
    double flops_per_token = 0;
  };

  void SetProgress(const v1::Job& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(set_.mu);
  void SetOldestQueued() ABSL_EXCLUSIVE_LOCKS_REQUIRED(set_.mu);
  // Begins at 0 what steps count.
  void BeginCounters(const v1::Job& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(set_.mu);
  // Parts of OnStep.
  void CountStep(const v1::Job& job, const v1::StepMetrics& step)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(set_.mu);
  void SetLayers(const v1::Job& job, const v1::StepMetrics& step)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(set_.mu);
  void SetUtilization(const v1::Job& job, const v1::StepMetrics& step)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(set_.mu);
  JobNotes& NotesOf(const v1::Job& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(set_.mu);
  // The sum over the job's workers; 0 when that of one is not known.
  double PeakFlops(const v1::Job& job) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(set_.mu);

  mutable monitoring::MetricSet set_;
  const Clock& clock_;
  std::map<std::string, JobNotes> jobs_ ABSL_GUARDED_BY(set_.mu);
  // What each worker has.
  std::map<std::string, std::string> devices_ ABSL_GUARDED_BY(set_.mu);
};

}  // namespace weft::coordinator

#endif  // WEFT_COORDINATOR_HTTP_METRICS_H_

// All metrics of the coordinator.
//
// One row a metric, below. Series of a job carry its id as `job` and go away
// some time after it has ended, series of a worker some time after it was lost.
#ifndef WEFT_COORDINATOR_HTTP_METRICS_H_
#define WEFT_COORDINATOR_HTTP_METRICS_H_

#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "coordinator/core/job_observer.h"
#include "weft/v1/job_service.pb.h"

namespace weft::coordinator {

enum class MetricType { kGauge, kCounter, kHistogram };

struct MetricSpec {
  const char* name;
  MetricType type;
  const char* labels;  // comma-separated
  const char* help;
};

inline constexpr MetricSpec kBuildInfo = {
    "weft_build_info", MetricType::kGauge, "version",
    "Constant 1; the labels describe the coordinator"};
inline constexpr MetricSpec kJobState = {
    "weft_job_state", MetricType::kGauge, "job,state",
    "1 for the state the job is in, 0 for the others"};
inline constexpr MetricSpec kJobStep = {"weft_job_step", MetricType::kGauge,
                                        "job", "Last finished step"};
inline constexpr MetricSpec kLoss = {
    "weft_loss", MetricType::kGauge, "job",
    "Mean next-token training loss of the last step, nats"};
inline constexpr MetricSpec kEvalLoss = {
    "weft_eval_loss", MetricType::kGauge, "job",
    "Mean next-token loss of the last validation, nats"};
inline constexpr MetricSpec kGradNorm = {
    "weft_grad_norm", MetricType::kGauge, "job",
    "Global gradient norm of the last step before clipping"};
inline constexpr MetricSpec kLearningRate = {"weft_learning_rate",
                                             MetricType::kGauge, "job",
                                             "Learning rate of the last step"};
inline constexpr MetricSpec kSteps = {"weft_steps_total", MetricType::kCounter,
                                      "job", "Finished steps"};
inline constexpr MetricSpec kTokens = {
    "weft_tokens_total", MetricType::kCounter, "job",
    "Tokens of the finished steps over all ranks"};
inline constexpr MetricSpec kStepSeconds = {
    "weft_step_duration_seconds", MetricType::kHistogram, "job",
    "Wall time of a step on the slowest rank"};
inline constexpr MetricSpec kExposedSeconds = {
    "weft_exposed_comm_seconds_total", MetricType::kCounter, "job,kind",
    "Communication time without a compute op beside it, mean over ranks"};
inline constexpr MetricSpec kHiddenSeconds = {
    "weft_hidden_comm_seconds_total", MetricType::kCounter, "job,kind",
    "Communication time with a compute op beside it, mean over ranks"};
inline constexpr MetricSpec kCommBytes = {
    "weft_comm_bytes_total", MetricType::kCounter, "job,op",
    "Payload bytes that ranks sent to other ranks"};
inline constexpr MetricSpec kPeakBytes = {
    "weft_peak_device_memory_bytes", MetricType::kGauge, "job",
    "Largest number of device bytes live at once on a rank in the last step"};
inline constexpr MetricSpec kImbalance = {
    "weft_expert_imbalance_ratio", MetricType::kGauge, "job",
    "Largest share of a layer's rows that one expert got, times the experts"};
inline constexpr MetricSpec kWorkerUp = {
    "weft_worker_up", MetricType::kGauge, "worker",
    "1 while the worker is attached, 0 after it was lost"};
inline constexpr MetricSpec kQueuedJobs = {
    "weft_queued_jobs", MetricType::kGauge, "", "Jobs that wait for workers"};

// Every metric above.
absl::Span<const MetricSpec> AllMetrics();

// Keeps the metrics up to date. Thread-safe.
class Metrics : public JobObserver {
 public:
  explicit Metrics(const std::string& version);
  ~Metrics() override;

  void OnJobState(const v1::Job& job) override;
  void OnStep(const v1::Job& job, const v1::StepMetrics& step) override;
  void OnEval(const v1::Job& job, const v1::EvalMetrics& eval) override;
  void OnJobForgotten(absl::string_view job_id) override;
  void OnWorker(absl::string_view worker_id, bool is_up) override;
  void OnWorkerForgotten(absl::string_view worker_id) override;
  void OnQueue(int jobs) override;

  // In the Prometheus text format, version 0.0.4.
  std::string ToText() const;

 private:
  class Families;
  const std::unique_ptr<Families> families_;
};

}  // namespace weft::coordinator

#endif  // WEFT_COORDINATOR_HTTP_METRICS_H_

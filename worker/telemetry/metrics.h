// Every metric of a worker, and where they are kept.
//
// Series of a job carry its id; those of the last job stay until the next one
// begins, so a scrape after the end still sees how it went.
#ifndef WEFT_WORKER_TELEMETRY_METRICS_H_
#define WEFT_WORKER_TELEMETRY_METRICS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "prometheus/registry.h"
#include "weft/v1/cluster_service.pb.h"
#include "weft/v1/job_service.pb.h"

namespace weft::telemetry {

// Name and help text of a metric, as a scrape shows them.
struct MetricInfo {
  const char* name;
  const char* help;
};

// Labels: job, name, rank, world, ep.
inline constexpr MetricInfo kJobInfo = {
    "weft_job_info", "The job this worker works or last worked for; always 1"};

// Label: job. Global values, the same on every rank: average over workers.
inline constexpr MetricInfo kStep = {"weft_step", "Last finished step"};
inline constexpr MetricInfo kLoss = {
    "weft_loss", "Mean next-token loss of the last step in nats"};
inline constexpr MetricInfo kEvalLoss = {
    "weft_eval_loss", "Mean next-token loss of the last validation in nats"};
inline constexpr MetricInfo kGradNorm = {
    "weft_grad_norm", "Global gradient norm of the last step before clipping"};
inline constexpr MetricInfo kLearningRate = {"weft_learning_rate",
                                             "Learning rate of the last step"};
inline constexpr MetricInfo kExpertImbalance = {
    "weft_expert_imbalance_ratio",
    "Rows of the fullest expert over the mean of the layer; 1 is balanced"};

// Label: job. This rank's share: sum over workers.
inline constexpr MetricInfo kSteps = {"weft_steps_total", "Steps finished"};
inline constexpr MetricInfo kTokens = {"weft_tokens_total",
                                       "Tokens this rank trained on"};
inline constexpr MetricInfo kStepDuration = {"weft_step_duration_seconds",
                                             "Wall time of a step"};

// Labels: job, stream (ep or fsdp, the latter being gather and reduce).
inline constexpr MetricInfo kCommSeconds = {
    "weft_comm_seconds_total", "Time the communication streams were busy"};
inline constexpr MetricInfo kExposedCommSeconds = {
    "weft_exposed_comm_seconds_total",
    "Time they were busy while no compute op ran"};
inline constexpr MetricInfo kCommBytes = {"weft_comm_bytes_total",
                                          "Payload bytes sent to other ranks"};

// Labels: job, kind (a category of device memory, or peak).
inline constexpr MetricInfo kDeviceMemory = {
    "weft_device_memory_bytes",
    "Device bytes allocated; peak: of the last step"};

// No labels. Read from the system when scraped.
inline constexpr MetricInfo kResidentMemory = {"process_resident_memory_bytes",
                                               "Resident set of the process"};
inline constexpr MetricInfo kOpenFds = {"process_open_fds",
                                        "Open file descriptors"};
inline constexpr MetricInfo kThreads = {"process_threads", "Threads"};
inline constexpr MetricInfo kTcpSockets = {"process_tcp_sockets",
                                           "TCP sockets open"};

// Bounds of the buckets of kStepDuration, seconds.
absl::Span<const double> StepDurationBuckets();

// Who a job's series belong to.
struct JobLabels {
  std::string job_id;
  std::string name;
  int rank = 0;
  int world = 1;
  int ep = 1;
};

// Holds the metrics. One thread at a time records, others may scrape meanwhile.
class WorkerMetrics {
 public:
  // `figures` is asked at every scrape, from the scraping thread.
  explicit WorkerMetrics(std::function<v1::ProcessFigures()> figures);
  ~WorkerMetrics();

  // Makes the series of a job and removes those of the job before.
  void BeginJob(const JobLabels& labels);

  // Requires: BeginJob. `device_bytes` by device::MemoryCategory.
  void RecordStep(const v1::StepMetrics& step,
                  absl::Span<const int64_t> device_bytes);
  void RecordEval(const v1::EvalMetrics& eval);

  // The text a scrape gets.
  std::string Scrape() const;

 private:
  struct Families;
  struct JobSeries;
  class ProcessCollector;

  prometheus::Registry registry_;
  const std::unique_ptr<ProcessCollector> process_;
  const std::unique_ptr<Families> families_;
  std::unique_ptr<JobSeries> job_;  // null before the first job
};

}  // namespace weft::telemetry

#endif  // WEFT_WORKER_TELEMETRY_METRICS_H_

// Every metric of a worker, and where they are kept.
//
// One declaration a metric, below; docs/metrics.md is made of them. They tell
// what one rank sees; what is known of whole jobs are the coordinator's.
//
// Series of a job carry its id as `job_id`; those of the last job stay until
// the next one begins, so a scrape after the end still sees how it went.
#ifndef WEFT_WORKER_TELEMETRY_METRICS_H_
#define WEFT_WORKER_TELEMETRY_METRICS_H_

#include <cstdint>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/types/span.h"
#include "base/metric.h"
#include "monitoring/metric_set.h"
#include "weft/v1/job_service.pb.h"

namespace weft::telemetry {

inline constexpr MetricSpec kBuildInfo = {
    "weft_rank_build_info", MetricType::kGauge, "", "version,device,libraries",
    "Constant 1; the labels describe the worker, its device and what it is "
    "linked with"};
inline constexpr MetricSpec kRankInfo = {
    "weft_rank_info", MetricType::kGauge, "", "job_id,name,rank,world,ep",
    "The job this worker works or last worked for; always 1"};

// Global values, the same on every rank.
inline constexpr MetricSpec kStep = {"weft_rank_step", MetricType::kGauge, "",
                                     "job_id", "Last finished step"};
inline constexpr MetricSpec kLoss = {"weft_rank_loss", MetricType::kGauge,
                                     "nats", "job_id",
                                     "Mean next-token loss of the last step"};
inline constexpr MetricSpec kEvalLoss = {
    "weft_rank_eval_loss", MetricType::kGauge, "nats", "job_id",
    "Mean next-token loss of the last validation"};
inline constexpr MetricSpec kGradNorm = {
    "weft_rank_grad_norm", MetricType::kGauge, "", "job_id",
    "Global gradient norm of the last step before clipping"};

// This rank's share.
inline constexpr MetricSpec kSteps = {"weft_rank_steps_total",
                                      MetricType::kCounter, "", "job_id",
                                      "Steps finished"};
inline constexpr MetricSpec kTokens = {"weft_rank_tokens_total",
                                       MetricType::kCounter, "", "job_id",
                                       "Tokens this rank trained on"};
inline constexpr MetricSpec kStepDuration = {"weft_rank_step_duration_seconds",
                                             MetricType::kHistogram,
                                             "seconds",
                                             "job_id",
                                             "Wall time of a step",
                                             kStepSecondsBuckets};
inline constexpr MetricSpec kExpertImbalance = {
    "weft_rank_expert_imbalance_ratio", MetricType::kGauge, "ratio", "job_id",
    "Rows of the fullest expert of any layer in the last step over the mean of "
    "the layer; 1 is balanced"};

// `cause` is ep (all-to-alls of experts), gather (of weights) or reduce (of
// gradients). Where a gather and a reduction run at once, the gather counts.
inline constexpr MetricSpec kExposedCommSeconds = {
    "weft_rank_exposed_comm_seconds_total", MetricType::kCounter, "seconds",
    "job_id,cause", "Communication time without a compute op beside it"};
inline constexpr MetricSpec kHiddenCommSeconds = {
    "weft_rank_hidden_comm_seconds_total", MetricType::kCounter, "seconds",
    "job_id,cause", "Communication time with a compute op beside it"};
inline constexpr MetricSpec kCommBytes = {
    "weft_rank_comm_bytes_total", MetricType::kCounter, "bytes", "job_id,cause",
    "Payload bytes sent to other ranks; of ep"};

inline constexpr MetricSpec kDeviceMemory = {
    "weft_rank_device_memory_bytes", MetricType::kGauge, "bytes",
    "job_id,category", "Device bytes allocated, by what they hold"};
inline constexpr MetricSpec kPeakMemory = {
    "weft_rank_peak_device_memory_bytes", MetricType::kGauge, "bytes", "job_id",
    "Largest number of device bytes live at once in the last step"};

// Every metric above, in the same order. A worker shows them and
// monitoring::ProcessMetrics().
absl::Span<const MetricSpec> AllMetrics();

// Who a job's series belong to.
struct JobLabels {
  std::string job_id;
  std::string name;
  int rank = 0;
  int world = 1;
  int ep = 1;
};

// Holds the metrics. One thread at a time records, others may scrape meanwhile:
// a scrape sees all of a step or nothing of it.
class WorkerMetrics {
 public:
  WorkerMetrics();

  // What this worker is. Once.
  void SetBuild(const std::string& version, const std::string& device,
                const std::string& libraries);

  // Begins the counters of a job at 0 and removes the series of the job before.
  // What is said of the last step is not there before the first has ended.
  void BeginJob(const JobLabels& labels);

  // Requires: BeginJob. `device_bytes` by device::MemoryCategory.
  void RecordStep(const v1::StepMetrics& step,
                  absl::Span<const int64_t> device_bytes);
  void RecordEval(const v1::EvalMetrics& eval);

  // The text a scrape gets.
  std::string Scrape() const;

 private:
  mutable monitoring::MetricSet set_;
  JobLabels job_ ABSL_GUARDED_BY(set_.mu);  // the last that began
};

}  // namespace weft::telemetry

#endif  // WEFT_WORKER_TELEMETRY_METRICS_H_

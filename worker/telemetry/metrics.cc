#include "worker/telemetry/metrics.h"

#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "kernels/device/device.h"
#include "monitoring/process_metrics.h"
#include "records/comm_by_cause.h"

namespace weft::telemetry {
namespace {

constexpr MetricSpec kAll[] = {
    kBuildInfo,
    kRankInfo,
    kStep,
    kLoss,
    kEvalLoss,
    kGradNorm,
    kSteps,
    kTokens,
    kStepDuration,
    kExpertImbalance,
    kExposedCommSeconds,
    kHiddenCommSeconds,
    kCommBytes,
    kDeviceMemory,
    kPeakMemory,
};

// Owners of series.
constexpr char kWorker[] = "worker";
constexpr char kJob[] = "job";

}  // namespace

absl::Span<const MetricSpec> AllMetrics() { return kAll; }

WorkerMetrics::WorkerMetrics() : set_(monitoring::WithProcessMetrics(kAll)) {}

void WorkerMetrics::SetBuild(const std::string& version,
                             const std::string& device,
                             const std::string& libraries) {
  MutexLock lock(&set_.mu);
  set_.Set(kBuildInfo, kWorker, {version, device, libraries}, 1);
}

void WorkerMetrics::BeginJob(const JobLabels& labels) {
  MutexLock lock(&set_.mu);
  set_.Forget(kJob);
  job_ = labels;
  set_.Set(kRankInfo, kJob,
           {labels.job_id, labels.name, absl::StrCat(labels.rank),
            absl::StrCat(labels.world), absl::StrCat(labels.ep)},
           1);
  for (const MetricSpec& spec : {kSteps, kTokens, kStepDuration}) {
    set_.Begin(spec, kJob, {labels.job_id});
  }
  for (const records::CommTime& time : records::CommByCause({})) {
    set_.Begin(kExposedCommSeconds, kJob, {labels.job_id, time.cause});
    set_.Begin(kHiddenCommSeconds, kJob, {labels.job_id, time.cause});
  }
  set_.Begin(kCommBytes, kJob, {labels.job_id, "ep"});
}

void WorkerMetrics::RecordStep(const v1::StepMetrics& step,
                               absl::Span<const int64_t> device_bytes) {
  MutexLock lock(&set_.mu);
  const std::string& id = job_.job_id;
  set_.Set(kStep, kJob, {id}, step.step());
  set_.Set(kLoss, kJob, {id}, step.loss());
  set_.Set(kGradNorm, kJob, {id}, step.grad_norm());
  set_.Count(kSteps, kJob, {id}, 1);
  set_.Count(kTokens, kJob, {id},
             static_cast<double>(step.tokens()) / job_.world);
  set_.Observe(kStepDuration, kJob, {id}, step.step_seconds());
  set_.Set(kExpertImbalance, kJob, {id}, step.expert_imbalance());
  for (const records::CommTime& time : records::CommByCause(step)) {
    set_.Count(kExposedCommSeconds, kJob, {id, time.cause}, time.exposed);
    set_.Count(kHiddenCommSeconds, kJob, {id, time.cause}, time.hidden());
  }
  set_.Count(kCommBytes, kJob, {id, "ep"}, step.ep_wire_bytes());
  set_.Set(kPeakMemory, kJob, {id}, step.peak_device_bytes());
  for (size_t c = 0;
       c < device_bytes.size() && c < device::kNumMemoryCategories; ++c) {
    set_.Set(kDeviceMemory, kJob,
             {id, Name(static_cast<device::MemoryCategory>(c))},
             device_bytes[c]);
  }
}

void WorkerMetrics::RecordEval(const v1::EvalMetrics& eval) {
  MutexLock lock(&set_.mu);
  set_.Set(kEvalLoss, kJob, {job_.job_id}, eval.loss());
}

std::string WorkerMetrics::Scrape() const {
  monitoring::UpdateProcessMetrics(set_);
  return set_.ToText();
}

}  // namespace weft::telemetry

#include "coordinator/http/metrics.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "coordinator/core/job_state.h"
#include "model/shape.h"
#include "monitoring/process_metrics.h"
#include "records/comm_by_cause.h"
#include "schedule/flops.h"
#include "schedule/peak_flops.h"
#include "weft/v1/job_service.pb.h"

namespace weft::coordinator {
namespace {

constexpr MetricSpec kAll[] = {
    kBuildInfo,      kQueuedJobs,     kOldestQueued,   kJobState,
    kJobStep,        kJobTargetSteps, kJobProgress,    kLoss,
    kObjective,      kRouterLoss,     kEvalLoss,       kGradNorm,
    kLearningRate,   kImbalance,      kSteps,          kTokens,
    kStepSeconds,    kUtilization,    kExposedSeconds, kHiddenSeconds,
    kCommBytes,      kMemory,         kPeakBytes,      kWorkerUp,
    kWorkerRestarts, kRecordErrors,
};

// Owners of series.
constexpr char kCoordinator[] = "coordinator";
std::string JobOwner(absl::string_view id) { return absl::StrCat("job ", id); }
std::string WorkerOwner(absl::string_view id) {
  return absl::StrCat("worker ", id);
}

}  // namespace

absl::Span<const MetricSpec> AllMetrics() { return kAll; }

Metrics::Metrics(const std::string& version, const Clock& clock)
    : set_(monitoring::WithProcessMetrics(kAll)), clock_(clock) {
  MutexLock lock(&set_.mu);
  set_.Set(kBuildInfo, kCoordinator, {version}, 1);
  set_.Set(kQueuedJobs, kCoordinator, {}, 0);
  set_.Begin(kRecordErrors, kCoordinator, {});
}

void Metrics::OnJobState(const v1::Job& job) {
  MutexLock lock(&set_.mu);
  const std::string owner = JobOwner(job.id());
  for (int state = 1; state < v1::JobState_ARRAYSIZE; ++state) {
    const auto value = static_cast<v1::JobState>(state);
    const std::string name =
        absl::AsciiStrToLower(std::string(ShortName(value)));
    set_.Set(kJobState, owner, {job.id(), name}, job.state() == value ? 1 : 0);
  }
  set_.Set(kJobTargetSteps, owner, {job.id()}, job.spec().steps());
  SetProgress(job);
  BeginCounters(job);
  std::optional<double>& queued_since = NotesOf(job).queued_since;
  queued_since.reset();
  if (job.state() == v1::JOB_STATE_QUEUED) {
    queued_since =
        job.create_time().seconds() + job.create_time().nanos() * 1e-9;
  }
  SetOldestQueued();
}

void Metrics::SetProgress(const v1::Job& job) {
  set_.Set(kJobProgress, JobOwner(job.id()), {job.id()},
           absl::ToUnixMillis(clock_.Now()) * 1e-3);
}

void Metrics::SetOldestQueued() {
  // An owner of its own: absent while no job waits.
  const std::string owner = "queue";
  std::optional<double> oldest;
  for (const auto& [id, notes] : jobs_) {
    const std::optional<double>& since = notes.queued_since;
    if (since.has_value()) oldest = std::min(oldest.value_or(*since), *since);
  }
  set_.Forget(owner);
  if (oldest.has_value()) set_.Set(kOldestQueued, owner, {}, *oldest);
}

void Metrics::BeginCounters(const v1::Job& job) {
  const std::string owner = JobOwner(job.id());
  set_.Begin(kSteps, owner, {job.id()});
  set_.Begin(kTokens, owner, {job.id()});
  set_.Begin(kStepSeconds, owner, {job.id()});
  for (const records::CommTime& time : records::CommByCause({})) {
    set_.Begin(kExposedSeconds, owner, {job.id(), time.cause});
    set_.Begin(kHiddenSeconds, owner, {job.id(), time.cause});
  }
  set_.Begin(kCommBytes, owner, {job.id(), "ep"});
}

void Metrics::OnStep(const v1::Job& job, const v1::StepMetrics& step) {
  MutexLock lock(&set_.mu);
  const std::string owner = JobOwner(job.id());
  set_.Set(kJobStep, owner, {job.id()}, step.step());
  SetProgress(job);
  set_.Set(kLoss, owner, {job.id()}, step.loss());
  set_.Set(kObjective, owner, {job.id()}, step.objective());
  set_.Set(kGradNorm, owner, {job.id()}, step.grad_norm());
  set_.Set(kLearningRate, owner, {job.id()}, step.learning_rate());
  set_.Set(kPeakBytes, owner, {job.id()}, step.peak_device_bytes());
  for (const v1::MemoryUse& use : step.memory()) {
    set_.Set(kMemory, owner, {job.id(), use.category()}, use.bytes());
  }
  CountStep(job, step);
  SetLayers(job, step);
  SetUtilization(job, step);
}

void Metrics::CountStep(const v1::Job& job, const v1::StepMetrics& step) {
  const std::string owner = JobOwner(job.id());
  set_.Count(kSteps, owner, {job.id()}, 1);
  set_.Count(kTokens, owner, {job.id()}, step.tokens());
  set_.Observe(kStepSeconds, owner, {job.id()}, step.step_seconds());
  for (const records::CommTime& time : records::CommByCause(step)) {
    set_.Count(kExposedSeconds, owner, {job.id(), time.cause}, time.exposed);
    set_.Count(kHiddenSeconds, owner, {job.id(), time.cause}, time.hidden());
  }
  set_.Count(kCommBytes, owner, {job.id(), "ep"}, step.ep_wire_bytes());
}

Metrics::JobNotes& Metrics::NotesOf(const v1::Job& job) {
  return jobs_[job.id()];
}

void Metrics::SetLayers(const v1::Job& job, const v1::StepMetrics& step) {
  JobNotes& notes = NotesOf(job);
  if (!notes.has_facts) {
    notes.has_facts = true;
    const model::Shape shape = model::ShapeOf(job.spec());
    std::vector<model::LayerBlocks> layers = shape.layers;
    layers.insert(layers.end(), shape.mtp_layers.begin(),
                  shape.mtp_layers.end());
    for (size_t layer = 0; layer < layers.size(); ++layer) {
      if (model::Has(layers[layer], model::BlockKind::kExperts)) {
        notes.moe_layers.push_back(layer);
      }
    }
    notes.flops_per_token = schedule::TrainingFlopsOf(shape).total();
  }
  const std::string owner = JobOwner(job.id());
  const std::vector<int>& layers = notes.moe_layers;
  for (size_t i = 0; i < layers.size() && i < step.layer_imbalances_size();
       ++i) {
    set_.Set(kImbalance, owner, {job.id(), absl::StrCat(layers[i])},
             step.layer_imbalances(i));
  }
  for (const v1::RouterLoss& loss : step.router_losses()) {
    set_.Set(kRouterLoss, owner,
             {job.id(), absl::StrCat(loss.layer()), loss.name()}, loss.value());
  }
}

double Metrics::PeakFlops(const v1::Job& job) const {
  double sum = 0;
  for (const std::string& worker : job.workers()) {
    const auto device = devices_.find(worker);
    if (device == devices_.end()) return 0;
    const std::optional<double> peak =
        schedule::PeakFlops(device->second, job.spec().precision().compute());
    if (!peak.has_value()) return 0;
    sum += *peak;
  }
  return sum;
}

void Metrics::SetUtilization(const v1::Job& job, const v1::StepMetrics& step) {
  const double peak = PeakFlops(job);
  if (peak <= 0 || step.step_seconds() <= 0) return;
  set_.Set(kUtilization, JobOwner(job.id()), {job.id()},
           step.tokens() * NotesOf(job).flops_per_token /
               (step.step_seconds() * peak));
}

void Metrics::OnEval(const v1::Job& job, const v1::EvalMetrics& eval) {
  MutexLock lock(&set_.mu);
  set_.Set(kEvalLoss, JobOwner(job.id()), {job.id()}, eval.loss());
  SetProgress(job);
}

void Metrics::OnJobForgotten(absl::string_view job_id) {
  MutexLock lock(&set_.mu);
  set_.Forget(JobOwner(job_id));
  jobs_.erase(std::string(job_id));
  SetOldestQueued();
}

void Metrics::OnWorker(const v1::Worker& worker) {
  MutexLock lock(&set_.mu);
  devices_[worker.id()] = worker.device();
  const std::string owner = WorkerOwner(worker.id());
  const bool is_up = worker.state() != v1::WORKER_STATE_LOST;
  set_.Set(kWorkerUp, owner, {worker.id()}, is_up ? 1 : 0);
  set_.CountTo(kWorkerRestarts, owner, {worker.id()}, worker.restarts());
}

void Metrics::OnWorkerForgotten(absl::string_view worker_id) {
  MutexLock lock(&set_.mu);
  set_.Forget(WorkerOwner(worker_id));
  devices_.erase(std::string(worker_id));
}

void Metrics::OnQueue(int jobs) {
  MutexLock lock(&set_.mu);
  set_.Set(kQueuedJobs, kCoordinator, {}, jobs);
}

void Metrics::CountRecordError() {
  MutexLock lock(&set_.mu);
  set_.Count(kRecordErrors, kCoordinator, {}, 1);
}

std::string Metrics::ToText() const {
  monitoring::UpdateProcessMetrics(set_);
  return set_.ToText();
}

}  // namespace weft::coordinator

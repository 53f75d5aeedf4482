#include "coordinator/http/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "coordinator/core/job_state.h"
#include "model/shape.h"
#include "schedule/flops.h"
#include "schedule/peak_flops.h"
#include "weft/v1/job_service.pb.h"

namespace weft::coordinator {
namespace {

using prometheus::BuildCounter;
using prometheus::BuildGauge;
using prometheus::BuildHistogram;
using prometheus::Counter;
using prometheus::Family;
using prometheus::Gauge;
using prometheus::Histogram;
using prometheus::Labels;
using prometheus::Registry;

constexpr MetricSpec kAll[] = {
    kBuildInfo,      kQueuedJobs,     kOldestQueued,   kJobState,
    kJobStep,        kJobTargetSteps, kJobProgress,    kLoss,
    kObjective,      kRouterLoss,     kEvalLoss,       kGradNorm,
    kLearningRate,   kImbalance,      kSteps,          kTokens,
    kStepSeconds,    kUtilization,    kExposedSeconds, kHiddenSeconds,
    kCommBytes,      kMemory,         kPeakBytes,      kWorkerUp,
    kWorkerRestarts, kRecordErrors,
};

// What follows from a job's spec.
struct JobFacts {
  std::vector<int> moe_layers;  // decoder layers with experts, ascending
  double flops_per_token = 0;
};

JobFacts FactsOf(const v1::TrainingJob& spec) {
  const model::Shape shape = model::ShapeOf(spec);
  JobFacts facts;
  for (size_t layer = 0; layer < shape.layers.size(); ++layer) {
    if (model::Has(shape.layers[layer], model::BlockKind::kExperts)) {
      facts.moe_layers.push_back(layer);
    }
  }
  facts.flops_per_token = schedule::TrainingFlopsOf(shape).total();
  return facts;
}

// Never negative, also for NaN: counters only go up.
double Positive(double value) { return std::max(0.0, value); }

}  // namespace

absl::Span<const MetricSpec> AllMetrics() { return kAll; }

// The series, by the job or worker they belong to. Changed through an Update.
class Metrics::Families {
 public:
  explicit Families(const std::string& version) {
    Gauges(kBuildInfo).Add({{"version", version}}).Set(1);
    Gauges(kQueuedJobs).Add({}).Set(0);
    Counters(kRecordErrors).Add({});
  }

  std::string ToText() const {
    std::vector<prometheus::MetricFamily> collected;
    {
      MutexLock lock(&mu_);
      collected = registry_.Collect();
    }
    std::ostringstream text;
    prometheus::TextSerializer().Serialize(text, collected);
    return text.str();
  }

 private:
  friend class Metrics::Update;

  // The series of a family that belong to one owner.
  template <typename T>
  using Owned = std::set<std::pair<Family<T>*, T*>>;

  struct Series {
    Owned<Gauge> gauges;
    Owned<Counter> counters;
    Owned<Histogram> histograms;
    std::string device;             // of a worker
    double restarts = 0;            // of a worker, counted so far
    std::optional<JobFacts> facts;  // of a job, once it has run a step
    // Of a job that waits: when it was submitted, seconds since 1970.
    std::optional<double> queued_since;
  };
  using ByOwner = std::map<std::string, Series>;

  // Register() of a name that is known returns its family.
  Family<Gauge>& Gauges(const MetricSpec& spec) {
    return BuildGauge().Name(spec.name).Help(spec.help).Register(registry_);
  }
  Family<Counter>& Counters(const MetricSpec& spec) {
    return BuildCounter().Name(spec.name).Help(spec.help).Register(registry_);
  }
  Family<Histogram>& Histograms(const MetricSpec& spec) {
    return BuildHistogram().Name(spec.name).Help(spec.help).Register(registry_);
  }

  static void Forget(absl::string_view owner, ByOwner& owners) {
    auto it = owners.find(std::string(owner));
    if (it == owners.end()) return;
    for (auto [family, series] : it->second.gauges) family->Remove(series);
    for (auto [family, series] : it->second.counters) family->Remove(series);
    for (auto [family, series] : it->second.histograms) family->Remove(series);
    owners.erase(it);
  }

  mutable Mutex mu_;  // held for each Update, and while a scrape collects
  Registry registry_{Registry::InsertBehavior::Merge};
  ByOwner jobs_ ABSL_GUARDED_BY(mu_);
  ByOwner workers_ ABSL_GUARDED_BY(mu_);
  Gauge* oldest_queued_ ABSL_GUARDED_BY(mu_) = nullptr;  // null: none waits
};

// One change of the metrics: no scrape comes between its parts.
class ABSL_SCOPED_LOCKABLE Metrics::Update {
 public:
  explicit Update(Families* families)
      ABSL_EXCLUSIVE_LOCK_FUNCTION(families->mu_)
      : f_(*families) {
    f_.mu_.Lock();
  }
  ~Update() ABSL_UNLOCK_FUNCTION() { f_.mu_.Unlock(); }

  Families::Series& Job(const v1::Job& job) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return f_.jobs_[job.id()];
  }
  Families::Series& Worker(const std::string& id)
      ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return f_.workers_[id];
  }
  void ForgetJob(absl::string_view id) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    Families::Forget(id, f_.jobs_);
  }
  void ForgetWorker(absl::string_view id) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    Families::Forget(id, f_.workers_);
  }

  void Set(const MetricSpec& spec, Families::Series& owner,
           const Labels& labels, double value) {
    Keep(f_.Gauges(spec), labels, owner.gauges).Set(value);
  }
  void Set(const MetricSpec& spec, double value) {
    f_.Gauges(spec).Add({}).Set(value);
  }
  void Count(const MetricSpec& spec, Families::Series& owner,
             const Labels& labels, double value) {
    Keep(f_.Counters(spec), labels, owner.counters).Increment(Positive(value));
  }
  void Count(const MetricSpec& spec) { f_.Counters(spec).Add({}).Increment(); }
  void Observe(const MetricSpec& spec, Families::Series& owner,
               const Labels& labels, double value) {
    const std::vector<double> bounds(spec.buckets.begin(), spec.buckets.end());
    Keep(f_.Histograms(spec), labels, owner.histograms, bounds)
        .Observe(Positive(value));
  }

  // Of all jobs that wait.
  void SetOldestQueued() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    std::optional<double> oldest;
    for (const auto& [id, series] : f_.jobs_) {
      const std::optional<double>& since = series.queued_since;
      if (since.has_value()) oldest = std::min(oldest.value_or(*since), *since);
    }
    Family<Gauge>& family = f_.Gauges(kOldestQueued);
    if (oldest.has_value()) {
      f_.oldest_queued_ = &family.Add({});
      f_.oldest_queued_->Set(*oldest);
    } else if (f_.oldest_queued_ != nullptr) {
      family.Remove(f_.oldest_queued_);
      f_.oldest_queued_ = nullptr;
    }
  }

  // The sum over the job's workers; 0 when that of one is not known.
  double PeakFlops(const v1::Job& job) {
    double sum = 0;
    for (const std::string& worker : job.workers()) {
      const std::optional<double> peak = schedule::PeakFlops(
          Worker(worker).device, job.spec().precision().compute());
      if (!peak.has_value()) return 0;
      sum += *peak;
    }
    return sum;
  }

 private:
  // The series with `labels`, which is made when it is new.
  template <typename T, typename... Args>
  static T& Keep(Family<T>& family, const Labels& labels,
                 Families::Owned<T>& owned, Args... args) {
    T& series = family.Add(labels, args...);
    owned.insert({&family, &series});
    return series;
  }

  Families& f_;
};

namespace {

Labels LabelsOf(const v1::Job& job) { return {{"job_id", job.id()}}; }

Labels LabelsOf(const v1::Job& job, const char* name,
                const std::string& value) {
  return {{"job_id", job.id()}, {name, value}};
}

// Communication of one cause in a step, seconds.
struct CauseTime {
  const char* cause;
  double busy;
  double exposed;
};

std::vector<CauseTime> TimesByCause(const v1::StepMetrics& step) {
  return {
      {"ep", step.ep_seconds(), step.ep_exposed_seconds()},
      {"gather", step.gather_seconds(), step.gather_exposed_seconds()},
      {"reduce", step.fsdp_seconds() - step.gather_seconds(),
       step.fsdp_exposed_seconds() - step.gather_exposed_seconds()},
  };
}

}  // namespace

Metrics::Metrics(const std::string& version, const Clock& clock)
    : families_(std::make_unique<Families>(version)), clock_(clock) {}

Metrics::~Metrics() = default;

void Metrics::OnJobState(const v1::Job& job) {
  Update update(families_.get());
  auto& series = update.Job(job);
  for (int state = 1; state < v1::JobState_ARRAYSIZE; ++state) {
    const auto value = static_cast<v1::JobState>(state);
    const std::string name =
        absl::AsciiStrToLower(std::string(ShortName(value)));
    update.Set(kJobState, series, LabelsOf(job, "state", name),
               job.state() == value ? 1 : 0);
  }
  update.Set(kJobTargetSteps, series, LabelsOf(job), job.spec().steps());
  update.Set(kJobProgress, series, LabelsOf(job),
             absl::ToUnixMillis(clock_.Now()) * 1e-3);
  series.queued_since.reset();
  if (job.state() == v1::JOB_STATE_QUEUED) {
    series.queued_since =
        job.create_time().seconds() + job.create_time().nanos() * 1e-9;
  }
  update.SetOldestQueued();
}

void Metrics::OnStep(const v1::Job& job, const v1::StepMetrics& step) {
  Update update(families_.get());
  auto& series = update.Job(job);
  const Labels labels = LabelsOf(job);
  update.Set(kJobStep, series, labels, step.step());
  update.Set(kJobProgress, series, labels,
             absl::ToUnixMillis(clock_.Now()) * 1e-3);
  update.Set(kLoss, series, labels, step.loss());
  update.Set(kObjective, series, labels, step.objective());
  update.Set(kGradNorm, series, labels, step.grad_norm());
  update.Set(kLearningRate, series, labels, step.learning_rate());
  update.Set(kPeakBytes, series, labels, step.peak_device_bytes());
  update.Count(kSteps, series, labels, 1);
  update.Count(kTokens, series, labels, step.tokens());
  update.Observe(kStepSeconds, series, labels, step.step_seconds());
  for (const CauseTime& time : TimesByCause(step)) {
    const Labels by_cause = LabelsOf(job, "cause", time.cause);
    update.Count(kExposedSeconds, series, by_cause, time.exposed);
    update.Count(kHiddenSeconds, series, by_cause, time.busy - time.exposed);
  }
  update.Count(kCommBytes, series, LabelsOf(job, "cause", "ep"),
               step.ep_wire_bytes());
  for (const v1::MemoryUse& use : step.memory()) {
    update.Set(kMemory, series, LabelsOf(job, "category", use.category()),
               use.bytes());
  }
  if (!series.facts.has_value()) series.facts = FactsOf(job.spec());
  SetLayers(job, step, update);
  SetUtilization(job, step, update);
}

void Metrics::SetLayers(const v1::Job& job, const v1::StepMetrics& step,
                        Update& update) {
  auto& series = update.Job(job);
  const std::vector<int>& layers = series.facts->moe_layers;
  for (size_t i = 0; i < layers.size() && i < step.layer_imbalances_size();
       ++i) {
    update.Set(kImbalance, series,
               LabelsOf(job, "layer", absl::StrCat(layers[i])),
               step.layer_imbalances(i));
  }
  for (const v1::RouterLoss& loss : step.router_losses()) {
    Labels labels = LabelsOf(job, "layer", absl::StrCat(loss.layer()));
    labels["loss"] = loss.name();
    update.Set(kRouterLoss, series, labels, loss.value());
  }
}

void Metrics::SetUtilization(const v1::Job& job, const v1::StepMetrics& step,
                             Update& update) {
  const double peak = update.PeakFlops(job);
  if (peak <= 0 || step.step_seconds() <= 0) return;
  auto& series = update.Job(job);
  update.Set(kUtilization, series, LabelsOf(job),
             step.tokens() * series.facts->flops_per_token /
                 (step.step_seconds() * peak));
}

void Metrics::OnEval(const v1::Job& job, const v1::EvalMetrics& eval) {
  Update update(families_.get());
  auto& series = update.Job(job);
  update.Set(kEvalLoss, series, LabelsOf(job), eval.loss());
  update.Set(kJobProgress, series, LabelsOf(job),
             absl::ToUnixMillis(clock_.Now()) * 1e-3);
}

void Metrics::OnJobForgotten(absl::string_view job_id) {
  Update(families_.get()).ForgetJob(job_id);
}

void Metrics::OnWorker(const v1::Worker& worker) {
  Update update(families_.get());
  auto& series = update.Worker(worker.id());
  series.device = worker.device();
  const Labels labels = {{"worker", worker.id()}};
  const bool is_up = worker.state() != v1::WORKER_STATE_LOST;
  update.Set(kWorkerUp, series, labels, is_up ? 1 : 0);
  update.Count(kWorkerRestarts, series, labels,
               worker.restarts() - series.restarts);
  series.restarts = worker.restarts();
}

void Metrics::OnWorkerForgotten(absl::string_view worker_id) {
  Update(families_.get()).ForgetWorker(worker_id);
}

void Metrics::OnQueue(int jobs) {
  Update(families_.get()).Set(kQueuedJobs, jobs);
}

void Metrics::CountRecordError() {
  Update(families_.get()).Count(kRecordErrors);
}

std::string Metrics::ToText() const { return families_->ToText(); }

}  // namespace weft::coordinator

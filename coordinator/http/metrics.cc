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
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/ascii.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "coordinator/core/job_state.h"
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
    kBuildInfo, kJobState,       kJobStep,       kLoss,      kEvalLoss,
    kGradNorm,  kLearningRate,   kSteps,         kTokens,    kStepSeconds,
    kPeakBytes, kExposedSeconds, kHiddenSeconds, kCommBytes, kImbalance,
    kWorkerUp,  kQueuedJobs,
};

const std::vector<double>& StepBuckets() {
  static const auto& buckets = *new std::vector<double>{
      0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1,  1.5,
      2,    3,    5,    7.5, 10,  15,   30,  60,   120};
  return buckets;
}

// Never negative, also for NaN: counters only go up.
double Positive(double value) { return std::max(0.0, value); }

}  // namespace

absl::Span<const MetricSpec> AllMetrics() { return kAll; }

// The series, by the job or worker they belong to.
class Metrics::Families {
 public:
  explicit Families(const std::string& version) {
    Gauges(kBuildInfo).Add({{"version", version}}).Set(1);
    Gauges(kQueuedJobs).Add({}).Set(0);
  }

  void SetQueue(double jobs) { Gauges(kQueuedJobs).Add({}).Set(jobs); }

  void SetWorker(const std::string& worker, double value) {
    MutexLock lock(&mu_);
    Keep(Gauges(kWorkerUp), {{"worker", worker}}, workers_[worker].gauges)
        .Set(value);
  }

  // Sets, counts or observes one value of a job.
  void Set(const MetricSpec& spec, const std::string& job, double value,
           Labels labels = {}) {
    MutexLock lock(&mu_);
    labels["job"] = job;
    Keep(Gauges(spec), labels, jobs_[job].gauges).Set(value);
  }
  void Count(const MetricSpec& spec, const std::string& job, double value,
             Labels labels = {}) {
    MutexLock lock(&mu_);
    labels["job"] = job;
    Keep(Counters(spec), labels, jobs_[job].counters)
        .Increment(Positive(value));
  }
  void ObserveStep(const std::string& job, double seconds) {
    MutexLock lock(&mu_);
    Keep(step_seconds_, {{"job", job}}, jobs_[job].histograms, StepBuckets())
        .Observe(Positive(seconds));
  }

  void ForgetJob(const std::string& job) {
    MutexLock lock(&mu_);
    Forget(job, jobs_);
  }
  void ForgetWorker(const std::string& worker) {
    MutexLock lock(&mu_);
    Forget(worker, workers_);
  }

  std::string ToText() const {
    std::ostringstream text;
    prometheus::TextSerializer().Serialize(text, registry_.Collect());
    return text.str();
  }

 private:
  // The series of a family that belong to one owner.
  template <typename T>
  using Owned = std::set<std::pair<Family<T>*, T*>>;

  struct Series {
    Owned<Gauge> gauges;
    Owned<Counter> counters;
    Owned<Histogram> histograms;
  };
  using ByOwner = std::map<std::string, Series>;

  // Register() of a name that is known returns its family.
  Family<Gauge>& Gauges(const MetricSpec& spec) {
    return BuildGauge().Name(spec.name).Help(spec.help).Register(registry_);
  }
  Family<Counter>& Counters(const MetricSpec& spec) {
    return BuildCounter().Name(spec.name).Help(spec.help).Register(registry_);
  }

  // The series with `labels`, which is made when it is new.
  template <typename T, typename... Args>
  static T& Keep(Family<T>& family, const Labels& labels, Owned<T>& owned,
                 Args... args) {
    T& series = family.Add(labels, args...);
    owned.insert({&family, &series});
    return series;
  }

  static void Forget(const std::string& owner, ByOwner& owners) {
    auto it = owners.find(owner);
    if (it == owners.end()) return;
    for (auto [family, series] : it->second.gauges) family->Remove(series);
    for (auto [family, series] : it->second.counters) family->Remove(series);
    for (auto [family, series] : it->second.histograms) family->Remove(series);
    owners.erase(it);
  }

  Registry registry_{Registry::InsertBehavior::Merge};
  Family<Histogram>& step_seconds_ = BuildHistogram()
                                         .Name(kStepSeconds.name)
                                         .Help(kStepSeconds.help)
                                         .Register(registry_);
  Mutex mu_;
  ByOwner jobs_ ABSL_GUARDED_BY(mu_);
  ByOwner workers_ ABSL_GUARDED_BY(mu_);
};

Metrics::Metrics(const std::string& version)
    : families_(std::make_unique<Families>(version)) {}

Metrics::~Metrics() = default;

void Metrics::OnJobState(const v1::Job& job) {
  for (int state = 1; state < v1::JobState_ARRAYSIZE; ++state) {
    const auto value = static_cast<v1::JobState>(state);
    const std::string name =
        absl::AsciiStrToLower(std::string(ShortName(value)));
    families_->Set(kJobState, job.id(), job.state() == value ? 1 : 0,
                   {{"state", name}});
  }
}

void Metrics::OnStep(const v1::Job& job, const v1::StepMetrics& step) {
  const std::string& id = job.id();
  families_->Set(kJobStep, id, step.step());
  families_->Set(kLoss, id, step.loss());
  families_->Set(kGradNorm, id, step.grad_norm());
  families_->Set(kLearningRate, id, step.learning_rate());
  families_->Set(kPeakBytes, id, step.peak_device_bytes());
  families_->Set(kImbalance, id, step.expert_imbalance());
  families_->Count(kSteps, id, 1);
  families_->Count(kTokens, id, step.tokens());
  families_->ObserveStep(id, step.step_seconds());
  families_->Count(kExposedSeconds, id, step.ep_exposed_seconds(),
                   {{"kind", "ep"}});
  families_->Count(kHiddenSeconds, id,
                   step.ep_seconds() - step.ep_exposed_seconds(),
                   {{"kind", "ep"}});
  families_->Count(kExposedSeconds, id, step.fsdp_exposed_seconds(),
                   {{"kind", "fsdp"}});
  families_->Count(kHiddenSeconds, id,
                   step.fsdp_seconds() - step.fsdp_exposed_seconds(),
                   {{"kind", "fsdp"}});
  families_->Count(kCommBytes, id, step.ep_wire_bytes(),
                   {{"op", "all_to_all"}});
}

void Metrics::OnEval(const v1::Job& job, const v1::EvalMetrics& eval) {
  families_->Set(kEvalLoss, job.id(), eval.loss());
}

void Metrics::OnJobForgotten(absl::string_view job_id) {
  families_->ForgetJob(std::string(job_id));
}

void Metrics::OnWorker(absl::string_view worker_id, bool is_up) {
  families_->SetWorker(std::string(worker_id), is_up ? 1 : 0);
}

void Metrics::OnWorkerForgotten(absl::string_view worker_id) {
  families_->ForgetWorker(std::string(worker_id));
}

void Metrics::OnQueue(int jobs) { families_->SetQueue(jobs); }

std::string Metrics::ToText() const { return families_->ToText(); }

}  // namespace weft::coordinator

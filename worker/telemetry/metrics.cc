#include "worker/telemetry/metrics.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/device/device.h"
#include "prometheus/collectable.h"
#include "prometheus/counter.h"
#include "prometheus/family.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "prometheus/text_serializer.h"

namespace weft::telemetry {
namespace {

using ::prometheus::Counter;
using ::prometheus::Family;
using ::prometheus::Gauge;
using ::prometheus::Histogram;
using ::prometheus::Labels;

constexpr MetricSpec kAll[] = {
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
    kResidentMemory,
    kOpenFds,
    kThreads,
    kTcpSockets,
};

template <typename T>
Family<T>& Register(const MetricSpec& info, prometheus::Registry& registry) {
  return prometheus::detail::Builder<T>()
      .Name(info.name)
      .Help(info.help)
      .Register(registry);
}

prometheus::MetricFamily GaugeFamily(const MetricSpec& info, double value) {
  prometheus::MetricFamily family;
  family.name = info.name;
  family.help = info.help;
  family.type = prometheus::MetricType::Gauge;
  family.metric.emplace_back();
  family.metric.back().gauge.value = value;
  return family;
}

}  // namespace

absl::Span<const MetricSpec> AllMetrics() { return kAll; }

class WorkerMetrics::ProcessCollector : public prometheus::Collectable {
 public:
  explicit ProcessCollector(std::function<v1::ProcessFigures()> figures)
      : figures_(std::move(figures)) {}

  std::vector<prometheus::MetricFamily> Collect() const override {
    const v1::ProcessFigures figures = figures_();
    return {GaugeFamily(kResidentMemory, figures.resident_bytes()),
            GaugeFamily(kOpenFds, figures.open_fds()),
            GaugeFamily(kThreads, figures.threads()),
            GaugeFamily(kTcpSockets, figures.tcp_sockets())};
  }

 private:
  const std::function<v1::ProcessFigures()> figures_;
};

struct WorkerMetrics::Families {
  explicit Families(prometheus::Registry& registry)
      : info(Register<Gauge>(kRankInfo, registry)),
        step(Register<Gauge>(kStep, registry)),
        loss(Register<Gauge>(kLoss, registry)),
        eval_loss(Register<Gauge>(kEvalLoss, registry)),
        grad_norm(Register<Gauge>(kGradNorm, registry)),
        steps(Register<Counter>(kSteps, registry)),
        tokens(Register<Counter>(kTokens, registry)),
        step_duration(Register<Histogram>(kStepDuration, registry)),
        expert_imbalance(Register<Gauge>(kExpertImbalance, registry)),
        exposed_comm(Register<Counter>(kExposedCommSeconds, registry)),
        hidden_comm(Register<Counter>(kHiddenCommSeconds, registry)),
        comm_bytes(Register<Counter>(kCommBytes, registry)),
        device_memory(Register<Gauge>(kDeviceMemory, registry)),
        peak_memory(Register<Gauge>(kPeakMemory, registry)) {}

  Family<Gauge>& info;
  Family<Gauge>& step;
  Family<Gauge>& loss;
  Family<Gauge>& eval_loss;
  Family<Gauge>& grad_norm;
  Family<Counter>& steps;
  Family<Counter>& tokens;
  Family<Histogram>& step_duration;
  Family<Gauge>& expert_imbalance;
  Family<Counter>& exposed_comm;
  Family<Counter>& hidden_comm;
  Family<Counter>& comm_bytes;
  Family<Gauge>& device_memory;
  Family<Gauge>& peak_memory;
};

// A metric of a family, removed from it with this handle.
template <typename T>
class Series {
 public:
  template <typename... Args>
  Series(Family<T>& family, const Labels& labels, Args&&... args)
      : family_(family),
        metric_(&family.Add(labels, std::forward<Args>(args)...)) {}
  Series(const Series&) = delete;
  Series& operator=(const Series&) = delete;
  ~Series() { family_.Remove(metric_); }

  T* operator->() const { return metric_; }

 private:
  Family<T>& family_;
  T* const metric_;
};

// Communication of one cause.
struct CauseSeries {
  CauseSeries(Family<Counter>& exposed_family, Family<Counter>& hidden_family,
              const Labels& labels)
      : exposed(exposed_family, labels), hidden(hidden_family, labels) {}

  // Never less than before, whatever was measured.
  void Add(double busy_seconds, double exposed_seconds) {
    exposed->Increment(std::max(0.0, exposed_seconds));
    hidden->Increment(std::max(0.0, busy_seconds - exposed_seconds));
  }

  Series<Counter> exposed;
  Series<Counter> hidden;
};

// The series of one job; they go with it.
struct WorkerMetrics::JobSeries {
  JobSeries(Families& families, const JobLabels& labels)
      : JobSeries(families, labels, Labels{{"job_id", labels.job_id}}) {}

  JobSeries(Families& f, const JobLabels& labels, const Labels& job)
      : world(labels.world),
        info(f.info, {{"job_id", labels.job_id},
                      {"name", labels.name},
                      {"rank", absl::StrCat(labels.rank)},
                      {"world", absl::StrCat(labels.world)},
                      {"ep", absl::StrCat(labels.ep)}}),
        step(f.step, job),
        loss(f.loss, job),
        grad_norm(f.grad_norm, job),
        steps(f.steps, job),
        tokens(f.tokens, job),
        step_duration(
            f.step_duration, job,
            Histogram::BucketBoundaries(std::begin(kStepSecondsBuckets),
                                        std::end(kStepSecondsBuckets))),
        expert_imbalance(f.expert_imbalance, job),
        ep(f.exposed_comm, f.hidden_comm, With(job, "cause", "ep")),
        gather(f.exposed_comm, f.hidden_comm, With(job, "cause", "gather")),
        reduce(f.exposed_comm, f.hidden_comm, With(job, "cause", "reduce")),
        ep_bytes(f.comm_bytes, With(job, "cause", "ep")),
        peak_memory(f.peak_memory, job),
        eval_family(f.eval_loss),
        job_labels(job) {
    info->Set(1);
    for (int c = 0; c < device::kNumMemoryCategories; ++c) {
      const char* category = Name(static_cast<device::MemoryCategory>(c));
      memory.push_back(std::make_unique<Series<Gauge>>(
          f.device_memory, With(job, "category", category)));
    }
  }

  static Labels With(Labels labels, const char* key, const char* value) {
    labels[key] = value;
    return labels;
  }

  const int world;
  Series<Gauge> info;
  Series<Gauge> step;
  Series<Gauge> loss;
  Series<Gauge> grad_norm;
  Series<Counter> steps;
  Series<Counter> tokens;
  Series<Histogram> step_duration;
  Series<Gauge> expert_imbalance;
  CauseSeries ep;
  CauseSeries gather;
  CauseSeries reduce;
  Series<Counter> ep_bytes;
  Series<Gauge> peak_memory;
  std::vector<std::unique_ptr<Series<Gauge>>> memory;  // by MemoryCategory
  // Made by the first validation: a job without one shows no series.
  Family<Gauge>& eval_family;
  const Labels job_labels;
  std::unique_ptr<Series<Gauge>> eval_loss;
};

WorkerMetrics::WorkerMetrics(std::function<v1::ProcessFigures()> figures)
    : process_(std::make_unique<ProcessCollector>(std::move(figures))),
      families_(std::make_unique<Families>(registry_)) {}

WorkerMetrics::~WorkerMetrics() = default;

void WorkerMetrics::BeginJob(const JobLabels& labels) {
  MutexLock lock(&mu_);
  job_.reset();
  job_ = std::make_unique<JobSeries>(*families_, labels);
}

void WorkerMetrics::RecordStep(const v1::StepMetrics& step,
                               absl::Span<const int64_t> device_bytes) {
  MutexLock lock(&mu_);
  JobSeries& job = *job_;
  job.step->Set(step.step());
  job.loss->Set(step.loss());
  job.grad_norm->Set(step.grad_norm());
  job.steps->Increment();
  job.tokens->Increment(static_cast<double>(step.tokens()) / job.world);
  job.step_duration->Observe(step.step_seconds());
  job.expert_imbalance->Set(step.expert_imbalance());
  job.ep.Add(step.ep_seconds(), step.ep_exposed_seconds());
  job.gather.Add(step.gather_seconds(), step.gather_exposed_seconds());
  job.reduce.Add(step.fsdp_seconds() - step.gather_seconds(),
                 step.fsdp_exposed_seconds() - step.gather_exposed_seconds());
  job.ep_bytes->Increment(step.ep_wire_bytes());
  job.peak_memory->Set(step.peak_device_bytes());
  for (size_t i = 0; i < device_bytes.size() && i < job.memory.size(); ++i) {
    (*job.memory[i])->Set(device_bytes[i]);
  }
}

void WorkerMetrics::RecordEval(const v1::EvalMetrics& eval) {
  MutexLock lock(&mu_);
  if (job_->eval_loss == nullptr) {
    job_->eval_loss =
        std::make_unique<Series<Gauge>>(job_->eval_family, job_->job_labels);
  }
  (*job_->eval_loss)->Set(eval.loss());
}

std::string WorkerMetrics::Scrape() const {
  std::vector<prometheus::MetricFamily> families;
  {
    MutexLock lock(&mu_);
    families = registry_.Collect();
  }
  for (prometheus::MetricFamily& family : process_->Collect()) {
    families.push_back(std::move(family));
  }
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace weft::telemetry

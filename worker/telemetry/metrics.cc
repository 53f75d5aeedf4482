#include "worker/telemetry/metrics.h"

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

constexpr double kStepDurationBounds[] = {0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5,
                                          0.75, 1,    1.5,  2,   3,   5,    7.5,
                                          10,   15,   30,   60,  120};

template <typename T>
Family<T>& Register(const MetricInfo& info, prometheus::Registry& registry) {
  return prometheus::detail::Builder<T>()
      .Name(info.name)
      .Help(info.help)
      .Register(registry);
}

prometheus::MetricFamily GaugeFamily(const MetricInfo& info, double value) {
  prometheus::MetricFamily family;
  family.name = info.name;
  family.help = info.help;
  family.type = prometheus::MetricType::Gauge;
  family.metric.emplace_back();
  family.metric.back().gauge.value = value;
  return family;
}

}  // namespace

absl::Span<const double> StepDurationBuckets() { return kStepDurationBounds; }

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
      : job_info(Register<Gauge>(kJobInfo, registry)),
        step(Register<Gauge>(kStep, registry)),
        loss(Register<Gauge>(kLoss, registry)),
        eval_loss(Register<Gauge>(kEvalLoss, registry)),
        grad_norm(Register<Gauge>(kGradNorm, registry)),
        learning_rate(Register<Gauge>(kLearningRate, registry)),
        expert_imbalance(Register<Gauge>(kExpertImbalance, registry)),
        steps(Register<Counter>(kSteps, registry)),
        tokens(Register<Counter>(kTokens, registry)),
        step_duration(Register<Histogram>(kStepDuration, registry)),
        comm_seconds(Register<Counter>(kCommSeconds, registry)),
        exposed_comm_seconds(Register<Counter>(kExposedCommSeconds, registry)),
        comm_bytes(Register<Counter>(kCommBytes, registry)),
        device_memory(Register<Gauge>(kDeviceMemory, registry)) {}

  Family<Gauge>& job_info;
  Family<Gauge>& step;
  Family<Gauge>& loss;
  Family<Gauge>& eval_loss;
  Family<Gauge>& grad_norm;
  Family<Gauge>& learning_rate;
  Family<Gauge>& expert_imbalance;
  Family<Counter>& steps;
  Family<Counter>& tokens;
  Family<Histogram>& step_duration;
  Family<Counter>& comm_seconds;
  Family<Counter>& exposed_comm_seconds;
  Family<Counter>& comm_bytes;
  Family<Gauge>& device_memory;
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

// The series of one job; they go with it.
struct WorkerMetrics::JobSeries {
  JobSeries(Families& families, const JobLabels& labels)
      : JobSeries(families, labels, Labels{{"job", labels.job_id}}) {}

  JobSeries(Families& f, const JobLabels& labels, const Labels& job)
      : world(labels.world),
        info(f.job_info, {{"job", labels.job_id},
                          {"name", labels.name},
                          {"rank", absl::StrCat(labels.rank)},
                          {"world", absl::StrCat(labels.world)},
                          {"ep", absl::StrCat(labels.ep)}}),
        step(f.step, job),
        loss(f.loss, job),
        grad_norm(f.grad_norm, job),
        learning_rate(f.learning_rate, job),
        expert_imbalance(f.expert_imbalance, job),
        steps(f.steps, job),
        tokens(f.tokens, job),
        step_duration(
            f.step_duration, job,
            Histogram::BucketBoundaries(std::begin(kStepDurationBounds),
                                        std::end(kStepDurationBounds))),
        ep_seconds(f.comm_seconds, With(job, "stream", "ep")),
        fsdp_seconds(f.comm_seconds, With(job, "stream", "fsdp")),
        ep_exposed(f.exposed_comm_seconds, With(job, "stream", "ep")),
        fsdp_exposed(f.exposed_comm_seconds, With(job, "stream", "fsdp")),
        ep_bytes(f.comm_bytes, With(job, "stream", "ep")),
        peak_memory(f.device_memory, With(job, "kind", "peak")),
        eval_family(f.eval_loss),
        job_labels(job) {
    info->Set(1);
    for (int c = 0; c < device::kNumMemoryCategories; ++c) {
      const char* kind = Name(static_cast<device::MemoryCategory>(c));
      memory.push_back(std::make_unique<Series<Gauge>>(
          f.device_memory, With(job, "kind", kind)));
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
  Series<Gauge> learning_rate;
  Series<Gauge> expert_imbalance;
  Series<Counter> steps;
  Series<Counter> tokens;
  Series<Histogram> step_duration;
  Series<Counter> ep_seconds;
  Series<Counter> fsdp_seconds;
  Series<Counter> ep_exposed;
  Series<Counter> fsdp_exposed;
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
  job_.reset();
  job_ = std::make_unique<JobSeries>(*families_, labels);
}

void WorkerMetrics::RecordStep(const v1::StepMetrics& step,
                               absl::Span<const int64_t> device_bytes) {
  JobSeries& job = *job_;
  job.step->Set(step.step());
  job.loss->Set(step.loss());
  job.grad_norm->Set(step.grad_norm());
  job.learning_rate->Set(step.learning_rate());
  job.expert_imbalance->Set(step.expert_imbalance());
  job.steps->Increment();
  job.tokens->Increment(static_cast<double>(step.tokens()) / job.world);
  job.step_duration->Observe(step.step_seconds());
  job.ep_seconds->Increment(step.ep_seconds());
  job.fsdp_seconds->Increment(step.fsdp_seconds());
  job.ep_exposed->Increment(step.ep_exposed_seconds());
  job.fsdp_exposed->Increment(step.fsdp_exposed_seconds());
  job.ep_bytes->Increment(step.ep_wire_bytes());
  job.peak_memory->Set(step.peak_device_bytes());
  for (size_t i = 0; i < device_bytes.size() && i < job.memory.size(); ++i) {
    (*job.memory[i])->Set(device_bytes[i]);
  }
}

void WorkerMetrics::RecordEval(const v1::EvalMetrics& eval) {
  if (job_->eval_loss == nullptr) {
    job_->eval_loss =
        std::make_unique<Series<Gauge>>(job_->eval_family, job_->job_labels);
  }
  (*job_->eval_loss)->Set(eval.loss());
}

std::string WorkerMetrics::Scrape() const {
  std::vector<prometheus::MetricFamily> families = registry_.Collect();
  for (prometheus::MetricFamily& family : process_->Collect()) {
    families.push_back(std::move(family));
  }
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace weft::telemetry

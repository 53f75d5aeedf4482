#include "monitoring/metric_set.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_split.h"
#include "base/logging.h"
#include "prometheus/counter.h"
#include "prometheus/family.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "prometheus/text_serializer.h"

namespace weft::monitoring {

using ::prometheus::Counter;
using ::prometheus::Family;
using ::prometheus::Gauge;
using ::prometheus::Histogram;

namespace {

template <typename T>
Family<T>& Register(const MetricSpec& spec, prometheus::Registry& registry) {
  return prometheus::detail::Builder<T>()
      .Name(spec.name)
      .Help(spec.help)
      .Register(registry);
}

prometheus::Labels LabelsOf(const MetricSpec& spec,
                            const MetricSet::Values& values) {
  const std::vector<std::string> names =
      absl::StrSplit(spec.labels, ',', absl::SkipEmpty());
  CHECK_EQ(names.size(), values.size()) << spec.name << " has other labels";
  prometheus::Labels labels;
  for (size_t i = 0; i < names.size(); ++i) labels[names[i]] = values[i];
  return labels;
}

// Never negative, also for NaN: counters only go up.
double Positive(double value) { return std::max(0.0, value); }

template <typename T>
using ByName = std::map<std::string, Family<T>*>;

template <typename T>
Family<T>& Find(const ByName<T>& families, const MetricSpec& spec) {
  const auto found = families.find(spec.name);
  CHECK(found != families.end())
      << spec.name << " is not declared with this type";
  return *found->second;
}

// Series of one owner, and how they go away.
template <typename T>
class Owned {
 public:
  template <typename... Args>
  T& Get(Family<T>& family, const prometheus::Labels& labels, Args... args) {
    T& series = family.Add(labels, args...);
    all_.insert({&family, &series});
    return series;
  }
  void Remove() {
    for (auto [family, series] : all_) family->Remove(series);
  }

 private:
  std::set<std::pair<Family<T>*, T*>> all_;
};

}  // namespace

struct MetricSet::Families {
  Families(absl::Span<const MetricSpec> specs, prometheus::Registry& registry) {
    for (const MetricSpec& spec : specs) {
      switch (spec.type) {
        case MetricType::kGauge:
          gauges[spec.name] = &Register<Gauge>(spec, registry);
          break;
        case MetricType::kCounter:
          counters[spec.name] = &Register<Counter>(spec, registry);
          break;
        case MetricType::kHistogram:
          histograms[spec.name] = &Register<Histogram>(spec, registry);
          break;
      }
    }
  }

  ByName<Gauge> gauges;
  ByName<Counter> counters;
  ByName<Histogram> histograms;
};

struct MetricSet::Series {
  Owned<Gauge> gauges;
  Owned<Counter> counters;
  Owned<Histogram> histograms;
};

MetricSet::MetricSet(absl::Span<const MetricSpec> specs)
    : families_(std::make_unique<Families>(specs, registry_)) {}

MetricSet::~MetricSet() = default;

MetricSet::Series& MetricSet::SeriesOf(const std::string& owner) {
  std::unique_ptr<Series>& series = owners_[owner];
  if (series == nullptr) series = std::make_unique<Series>();
  return *series;
}

void MetricSet::Set(const MetricSpec& spec, const std::string& owner,
                    const Values& labels, double value) {
  SeriesOf(owner)
      .gauges.Get(Find(families_->gauges, spec), LabelsOf(spec, labels))
      .Set(value);
}

Counter& MetricSet::CounterOf(const MetricSpec& spec, const std::string& owner,
                              const Values& labels) {
  return SeriesOf(owner).counters.Get(Find(families_->counters, spec),
                                      LabelsOf(spec, labels));
}

Histogram& MetricSet::HistogramOf(const MetricSpec& spec,
                                  const std::string& owner,
                                  const Values& labels) {
  return SeriesOf(owner).histograms.Get(
      Find(families_->histograms, spec), LabelsOf(spec, labels),
      Histogram::BucketBoundaries(spec.buckets.begin(), spec.buckets.end()));
}

void MetricSet::Count(const MetricSpec& spec, const std::string& owner,
                      const Values& labels, double by) {
  CounterOf(spec, owner, labels).Increment(Positive(by));
}

void MetricSet::CountTo(const MetricSpec& spec, const std::string& owner,
                        const Values& labels, double total) {
  Counter& counter = CounterOf(spec, owner, labels);
  counter.Increment(Positive(total - counter.Value()));
}

void MetricSet::Observe(const MetricSpec& spec, const std::string& owner,
                        const Values& labels, double value) {
  HistogramOf(spec, owner, labels).Observe(Positive(value));
}

void MetricSet::Begin(const MetricSpec& spec, const std::string& owner,
                      const Values& labels) {
  if (spec.type == MetricType::kHistogram) {
    HistogramOf(spec, owner, labels);
  } else {
    CounterOf(spec, owner, labels);
  }
}

void MetricSet::Forget(const std::string& owner) {
  const auto found = owners_.find(owner);
  if (found == owners_.end()) return;
  found->second->gauges.Remove();
  found->second->counters.Remove();
  found->second->histograms.Remove();
  owners_.erase(found);
}

std::string MetricSet::ToText() const {
  std::vector<prometheus::MetricFamily> collected;
  {
    MutexLock lock(&mu);
    collected = registry_.Collect();
  }
  return prometheus::TextSerializer().Serialize(collected);
}

}  // namespace weft::monitoring

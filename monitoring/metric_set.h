// MetricSet: the series of a process, kept as their declarations say.
#ifndef WEFT_MONITORING_METRIC_SET_H_
#define WEFT_MONITORING_METRIC_SET_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/metric.h"
#include "base/mutex.h"
#include "prometheus/counter.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"

namespace weft::monitoring {

// A series is named by its declaration and the values of its labels, in the
// order in which the declaration has their names. It belongs to an owner, a job
// for example, and goes away with it.
//
// Changes are made under `mu`: a scrape sees all that is done between its Lock
// and Unlock, or nothing of it.
//
// Requires: a metric is one of those that the set was made of, and used as its
// type says, with as many values as it has labels. Thread-safe.
class MetricSet {
 public:
  using Values = std::vector<std::string>;

  // Texts of the declarations outlive the set.
  explicit MetricSet(absl::Span<const MetricSpec> specs);
  ~MetricSet();
  MetricSet(const MetricSet&) = delete;
  MetricSet& operator=(const MetricSet&) = delete;

  mutable Mutex mu;

  // A gauge is `value` from now on.
  void Set(const MetricSpec& spec, const std::string& owner,
           const Values& labels, double value)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // A counter goes up by `by`; not at all when that is negative or no number.
  void Count(const MetricSpec& spec, const std::string& owner,
             const Values& labels, double by) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // A counter of what somebody else counts goes up to `total`.
  void CountTo(const MetricSpec& spec, const std::string& owner,
               const Values& labels, double total)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // A histogram gets one more value; what is no number, or negative, is 0.
  void Observe(const MetricSpec& spec, const std::string& owner,
               const Values& labels, double value)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // A counter or histogram is there from now on, at 0 when it is new: rates
  // count from there.
  void Begin(const MetricSpec& spec, const std::string& owner,
             const Values& labels) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

  // Removes all series of an owner.
  void Forget(const std::string& owner) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

  // All series, in the Prometheus text format, version 0.0.4.
  std::string ToText() const ABSL_LOCKS_EXCLUDED(mu);

 private:
  struct Families;
  struct Series;

  Series& SeriesOf(const std::string& owner) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  prometheus::Counter& CounterOf(const MetricSpec& spec,
                                 const std::string& owner, const Values& labels)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  prometheus::Histogram& HistogramOf(const MetricSpec& spec,
                                     const std::string& owner,
                                     const Values& labels)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

  prometheus::Registry registry_ ABSL_GUARDED_BY(mu);
  const std::unique_ptr<Families> families_;  // by name; never changes
  std::map<std::string, std::unique_ptr<Series>> owners_ ABSL_GUARDED_BY(mu);
};

}  // namespace weft::monitoring

#endif  // WEFT_MONITORING_METRIC_SET_H_

// What a metric is, before anything is measured: its declaration.
#ifndef WEFT_BASE_METRIC_H_
#define WEFT_BASE_METRIC_H_

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace weft {

enum class MetricType { kGauge, kCounter, kHistogram };

constexpr absl::string_view Name(MetricType type) {
  return type == MetricType::kGauge     ? "gauge"
         : type == MetricType::kCounter ? "counter"
                                        : "histogram";
}

// A metric as a scrape shows it. Names follow Prometheus' naming guide: base
// units, the unit last, `_total` on counters alone.
struct MetricSpec {
  const char* name;
  MetricType type;
  const char* unit;    // "seconds", "bytes", "ratio", …; empty for counts
  const char* labels;  // comma-separated, in order; empty for none
  const char* help;
  // Upper bounds of a histogram's buckets, ascending; the last one, +Inf, is
  // left out. Empty for other types.
  absl::Span<const double> buckets = {};
};

// Bounds for the time of an optimizer step: from tiny models to large ones.
inline constexpr double kStepSecondsBuckets[] = {
    0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1,  1.5,
    2,    3,    5,    7.5, 10,  15,   30,  60,   120};

}  // namespace weft

#endif  // WEFT_BASE_METRIC_H_

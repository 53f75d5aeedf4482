// Reads what a scrape gets, and compares it with what is declared. For tests.
#ifndef WEFT_MONITORING_EXPOSITION_H_
#define WEFT_MONITORING_EXPOSITION_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/metric.h"

namespace weft::monitoring {

// In what `text`, of Prometheus' text format 0.0.4, is not as `specs` say:
// help, type, the names of each series' labels; a metric without a series; a
// series of no metric. A line each, in the order of `specs`.
std::vector<std::string> DifferencesFrom(absl::Span<const MetricSpec> specs,
                                         absl::string_view text);

}  // namespace weft::monitoring

#endif  // WEFT_MONITORING_EXPOSITION_H_

#include "docs/metrics_page.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/types/span.h"
#include "base/metric.h"
#include "coordinator/http/metrics.h"
#include "monitoring/process_metrics.h"
#include "worker/telemetry/metrics.h"

namespace weft::docs {
namespace {

std::string Code(absl::string_view text) {
  return absl::StrCat("`", text, "`");
}

std::string Labels(absl::string_view labels) {
  std::vector<std::string> codes;
  for (absl::string_view label :
       absl::StrSplit(labels, ',', absl::SkipEmpty())) {
    codes.push_back(Code(label));
  }
  return absl::StrJoin(codes, ", ");
}

std::string Row(const MetricSpec& spec) {
  std::string help = absl::StrReplaceAll(spec.help, {{"|", "\\|"}});
  if (!spec.buckets.empty()) {
    absl::StrAppend(&help, "; buckets up to ",
                    absl::StrJoin(spec.buckets, ", "));
  }
  return absl::StrCat("| ", Code(spec.name), " | ", Name(spec.type), " | ",
                      spec.unit, " | ", Labels(spec.labels), " | ", help,
                      " |\n");
}

std::string Table(absl::Span<const MetricSpec> specs) {
  std::string table =
      "| metric | type | unit | labels | what it is |\n|---|---|---|---|---|\n";
  for (const MetricSpec& spec : specs) absl::StrAppend(&table, Row(spec));
  return table;
}

constexpr char kHead[] = R"(# Metrics

Made by `bazel run //docs:print_metrics` from the declarations in
`coordinator/http/metrics.h`, `worker/telemetry/metrics.h` and
`monitoring/process_metrics.h`.

Both serve them at `/metrics` of their `--http_address`, in Prometheus' text format.
The coordinator's tell of whole jobs and of the cluster; the workers', which begin
with `weft_rank_`, of one rank. `job_id` is a job's id, as `weftctl get jobs` lists
it; series of a job go away ten minutes after it has ended, on a worker when its next
job begins. Counters of a job begin at 0 before its first step; what is said of the
last step or validation is there once there was one. Every scrape sees all of a step or
nothing of it, so that counters of a job divide into each other: tokens by the sum of
step durations, hidden by hidden and exposed seconds.

)";

}  // namespace

std::string MetricsPage() {
  return absl::StrCat(kHead, "## Coordinator\n\n",
                      Table(coordinator::AllMetrics()), "\n## Worker\n\n",
                      Table(telemetry::AllMetrics()), "\n## Both\n\n",
                      Table(monitoring::ProcessMetrics()));
}

}  // namespace weft::docs

#include "monitoring/process_metrics.h"

#include "base/process_stats.h"

namespace weft::monitoring {
namespace {

constexpr MetricSpec kAll[] = {kCpuSeconds, kStartTime, kResidentMemory,
                               kOpenFds,    kThreads,   kTcpSockets};
// Of the series.
constexpr char kOwner[] = "process";

}  // namespace

absl::Span<const MetricSpec> ProcessMetrics() { return kAll; }

std::vector<MetricSpec> WithProcessMetrics(absl::Span<const MetricSpec> own) {
  std::vector<MetricSpec> all(own.begin(), own.end());
  for (const MetricSpec& spec : kAll) all.push_back(spec);
  return all;
}

void UpdateProcessMetrics(MetricSet& set) {
  const ProcessStats stats = ReadProcessStats();
  MutexLock lock(&set.mu);
  set.CountTo(kCpuSeconds, kOwner, {}, stats.cpu_seconds);
  set.Set(kStartTime, kOwner, {}, stats.start_time_seconds);
  set.Set(kResidentMemory, kOwner, {}, stats.resident_bytes);
  set.Set(kOpenFds, kOwner, {}, stats.open_fds);
  set.Set(kThreads, kOwner, {}, stats.threads);
  set.Set(kTcpSockets, kOwner, {}, stats.tcp_sockets);
}

}  // namespace weft::monitoring

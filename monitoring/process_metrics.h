// The metrics that every process of Weft has, under the names that Prometheus'
// own client libraries give them where they do.
#ifndef WEFT_MONITORING_PROCESS_METRICS_H_
#define WEFT_MONITORING_PROCESS_METRICS_H_

#include <vector>

#include "absl/types/span.h"
#include "base/metric.h"
#include "monitoring/metric_set.h"

namespace weft::monitoring {

inline constexpr MetricSpec kCpuSeconds = {
    "process_cpu_seconds_total", MetricType::kCounter, "seconds", "",
    "User and system CPU time of all threads"};
inline constexpr MetricSpec kStartTime = {
    "process_start_time_seconds", MetricType::kGauge, "seconds", "",
    "When the process started, since 1970"};
inline constexpr MetricSpec kResidentMemory = {"process_resident_memory_bytes",
                                               MetricType::kGauge, "bytes", "",
                                               "Resident set of the process"};
inline constexpr MetricSpec kOpenFds = {"process_open_fds", MetricType::kGauge,
                                        "", "", "Open file descriptors"};
inline constexpr MetricSpec kThreads = {"weft_process_threads",
                                        MetricType::kGauge, "", "", "Threads"};
inline constexpr MetricSpec kTcpSockets = {
    "weft_process_tcp_sockets", MetricType::kGauge, "", "", "TCP sockets open"};

// Every metric above, in the same order.
absl::Span<const MetricSpec> ProcessMetrics();

// Those of a binary and of every process.
std::vector<MetricSpec> WithProcessMetrics(absl::Span<const MetricSpec> own);

// Reads them from the system. Requires: the set has ProcessMetrics().
void UpdateProcessMetrics(MetricSet& set) ABSL_LOCKS_EXCLUDED(set.mu);

}  // namespace weft::monitoring

#endif  // WEFT_MONITORING_PROCESS_METRICS_H_

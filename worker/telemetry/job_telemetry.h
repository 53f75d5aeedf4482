// JobTelemetry: where the numbers of one rank of one job go on this worker.
#ifndef WEFT_WORKER_TELEMETRY_JOB_TELEMETRY_H_
#define WEFT_WORKER_TELEMETRY_JOB_TELEMETRY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "records/step_log.h"
#include "weft/v1/job_service.pb.h"
#include "worker/telemetry/metrics.h"

namespace weft::telemetry {

// Feeds the worker's metrics and, on rank 0, `<artifacts>/steps.rank-0.jsonl`.
// Thread-compatible.
class JobTelemetry {
 public:
  // `metrics` may be null. FAILED_PRECONDITION when the step log cannot be
  // opened.
  static absl::StatusOr<std::unique_ptr<JobTelemetry>> Create(
      const JobLabels& labels, const std::string& artifacts,
      WorkerMetrics* metrics);

  // `device_bytes` by device::MemoryCategory. What cannot be written to the
  // step log is left out of it, the first time with a warning: a job does not
  // end for its log.
  void RecordStep(const v1::StepMetrics& step,
                  absl::Span<const int64_t> device_bytes);
  void RecordEval(const v1::EvalMetrics& eval);

 private:
  JobTelemetry(WorkerMetrics* metrics, std::string path,
               std::unique_ptr<records::StepLog> log)
      : metrics_(metrics), path_(std::move(path)), log_(std::move(log)) {}

  void WriteLine(const std::string& line);
  absl::Status TryLine(const std::string& line);

  WorkerMetrics* const metrics_;
  const std::string path_;                 // empty on all ranks but 0
  std::unique_ptr<records::StepLog> log_;  // null when it has to be opened
  bool has_warned_ = false;
};

}  // namespace weft::telemetry

#endif  // WEFT_WORKER_TELEMETRY_JOB_TELEMETRY_H_

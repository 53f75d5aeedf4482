// JobTelemetry: where the numbers of one rank of one job go on this worker.
#ifndef WEFT_WORKER_TELEMETRY_JOB_TELEMETRY_H_
#define WEFT_WORKER_TELEMETRY_JOB_TELEMETRY_H_

#include <cstdint>
#include <memory>
#include <string>

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
  // written.
  static absl::StatusOr<std::unique_ptr<JobTelemetry>> Create(
      const JobLabels& labels, const std::string& artifacts,
      WorkerMetrics* metrics);

  // `device_bytes` by device::MemoryCategory. Errors are those of the step log.
  absl::Status RecordStep(const v1::StepMetrics& step,
                          absl::Span<const int64_t> device_bytes);
  absl::Status RecordEval(const v1::EvalMetrics& eval);

 private:
  JobTelemetry(WorkerMetrics* metrics, std::unique_ptr<records::StepLog> log)
      : metrics_(metrics), log_(std::move(log)) {}

  WorkerMetrics* const metrics_;
  const std::unique_ptr<records::StepLog> log_;  // null on all ranks but 0
};

}  // namespace weft::telemetry

#endif  // WEFT_WORKER_TELEMETRY_JOB_TELEMETRY_H_

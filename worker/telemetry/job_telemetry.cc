#include "worker/telemetry/job_telemetry.h"

#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace weft::telemetry {

absl::StatusOr<std::unique_ptr<JobTelemetry>> JobTelemetry::Create(
    const JobLabels& labels, const std::string& artifacts,
    WorkerMetrics* metrics) {
  std::unique_ptr<records::StepLog> log;
  if (labels.rank == 0) {
    ASSIGN_OR_RETURN(log, records::StepLog::Create(
                              absl::StrCat(artifacts, "/steps.rank-0.jsonl")));
  }
  if (metrics != nullptr) metrics->BeginJob(labels);
  return absl::WrapUnique(new JobTelemetry(metrics, std::move(log)));
}

absl::Status JobTelemetry::RecordStep(const v1::StepMetrics& step,
                                      absl::Span<const int64_t> device_bytes) {
  if (metrics_ != nullptr) metrics_->RecordStep(step, device_bytes);
  return log_ != nullptr ? log_->WriteLine(records::ToJsonLine(step))
                         : absl::OkStatus();
}

absl::Status JobTelemetry::RecordEval(const v1::EvalMetrics& eval) {
  if (metrics_ != nullptr) metrics_->RecordEval(eval);
  return log_ != nullptr ? log_->WriteLine(records::ToJsonLine(eval))
                         : absl::OkStatus();
}

}  // namespace weft::telemetry

#include "worker/telemetry/job_telemetry.h"

#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "base/status_macros.h"

namespace weft::telemetry {

absl::StatusOr<std::unique_ptr<JobTelemetry>> JobTelemetry::Create(
    const JobLabels& labels, const std::string& artifacts,
    WorkerMetrics* metrics) {
  std::string path;
  std::unique_ptr<records::StepLog> log;
  if (labels.rank == 0) {
    path = absl::StrCat(artifacts, "/steps.rank-0.jsonl");
    ASSIGN_OR_RETURN(log, records::StepLog::Create(path));
  }
  if (metrics != nullptr) metrics->BeginJob(labels);
  return absl::WrapUnique(
      new JobTelemetry(metrics, std::move(path), std::move(log)));
}

void JobTelemetry::RecordStep(const v1::StepMetrics& step,
                              absl::Span<const int64_t> device_bytes) {
  if (metrics_ != nullptr) metrics_->RecordStep(step, device_bytes);
  if (!path_.empty()) WriteLine(records::ToJsonLine(step));
}

void JobTelemetry::RecordEval(const v1::EvalMetrics& eval) {
  if (metrics_ != nullptr) metrics_->RecordEval(eval);
  if (!path_.empty()) WriteLine(records::ToJsonLine(eval));
}

void JobTelemetry::WriteLine(const std::string& line) {
  const absl::Status status = TryLine(line);
  if (status.ok()) return;
  log_.reset();
  if (has_warned_) return;
  has_warned_ = true;
  LOG(WARNING) << "steps are missing in the job's log: " << status.message();
}

absl::Status JobTelemetry::TryLine(const std::string& line) {
  if (log_ == nullptr) {
    ASSIGN_OR_RETURN(log_, records::StepLog::Append(path_));
  }
  return log_->WriteLine(line);
}

}  // namespace weft::telemetry

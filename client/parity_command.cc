#include "client/parity_command.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/follow.h"
#include "client/job_file.h"
#include "client/json_file.h"
#include "client/output.h"
#include "client/parity.h"
#include "client/parity_matrix.h"
#include "client/report.h"
#include "client/utf8.h"
#include "nlohmann/json.hpp"

namespace weft::client {
namespace {

// Runs a combination. An error ends the matrix; what becomes of a run does not.
absl::Status Run(CoordinatorClient& client, const ParityRun& run,
                 ParityMatrix* matrix) {
  v1::SubmitJobRequest request;
  *request.mutable_job() = run.job;
  const auto submitted = client.SubmitJob(std::move(request));
  if (absl::IsInvalidArgument(submitted.status())) {
    matrix->AddRefused(run, std::string(submitted.status().message()));
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(submitted.status());
  ASSIGN_OR_RETURN(const v1::Job job,
                   Follow(client, submitted->job().id(), {},
                          [](const v1::WatchJobResponse&) {}));
  if (job.state() == v1::JOB_STATE_SUCCEEDED) {
    return matrix->AddExecuted(run, job.artifacts());
  }
  matrix->AddFailed(run, job.message());
  return absl::OkStatus();
}

absl::StatusOr<std::vector<ParityRun>> MakeRuns(
    CoordinatorClient& client, const v1::TrainingJob& job,
    const std::vector<std::string>& vary) {
  ASSIGN_OR_RETURN(const auto axes, ParseParityAxes(vary));
  RETURN_IF_ERROR(CheckParitySizes(job));
  ASSIGN_OR_RETURN(const v1::ListWorkersResponse workers, client.ListWorkers());
  return ParityRuns(job, axes, workers.workers_size());
}

std::string ToTables(const ParityMatrix& matrix) {
  TextTable runs({"RUN", "RESULT", "COMBINATION", "DETAIL"});
  int number = 0;
  for (const ParityRow& row : matrix.rows()) {
    runs.AddRow(
        {absl::StrCat(++number), row.result, row.combination, row.detail});
  }
  TextTable classes({"CLASS: EQUAL TO THE BIT", "FIRST RUN", "GENERATED",
                     "REFUSED", "EXECUTED", "IDENTICAL TO FIRST"});
  for (const ParityClass& each : matrix.classes()) {
    classes.AddRow({each.name,
                    each.first_run == 0 ? "-" : absl::StrCat(each.first_run),
                    absl::StrCat(each.generated), absl::StrCat(each.refused),
                    absl::StrCat(each.executed), absl::StrCat(each.identical)});
  }
  std::string text =
      absl::StrCat(runs.ToString(), "\n", classes.ToString(), "\n");
  number = 0;
  for (const ParityRefusal& refusal : matrix.refusals()) {
    absl::StrAppend(&text, "reason ", ++number, ", of ", refusal.runs,
                    " refused: ", Printable(refusal.reason), "\n");
  }
  return text;
}

std::string ToJsonLines(const ParityMatrix& matrix) {
  std::string text;
  int number = 0;
  for (const ParityRow& row : matrix.rows()) {
    const nlohmann::json line = {{"run", ++number},
                                 {"combination", row.combination},
                                 {"class", row.sum_class},
                                 {"result", row.result},
                                 {"detail", row.detail}};
    absl::StrAppend(&text, JsonText(line), "\n");
  }
  nlohmann::json end = {{"generated", matrix.generated()},
                        {"refused", matrix.refused()},
                        {"executed", matrix.executed()},
                        {"failed", matrix.failed()},
                        {"identical", matrix.identical()},
                        {"within_bounds", matrix.within_bounds()},
                        {"different", matrix.different()},
                        {"empty_cells", matrix.EmptyCells()},
                        {"holds", matrix.holds()}};
  for (const ParityRefusal& refusal : matrix.refusals()) {
    end["refusals"].push_back(
        {{"reason", refusal.reason}, {"runs", refusal.runs}});
  }
  return absl::StrCat(text, JsonText(end), "\n");
}

void Print(Session& session, const ParityMatrix& matrix) {
  session.out << (IsForScripts(session.format) ? ToJsonLines(matrix)
                                               : ToTables(matrix));
  for (const std::string& cell : matrix.EmptyCells()) {
    session.err << "empty: " << cell << "\n";
  }
  session.err << matrix.Summary() << "\n";
}

}  // namespace

ExitCode Parity(Session& session, const ParityCommandOptions& options) {
  const auto file = ReadJobFile(options.file.path, options.file.sets);
  if (!file.ok()) return ReportError(session.err, file.status());
  if (!file->errors.empty()) return ReportErrors(session.err, file->errors);
  ExitCode code = kExitFailed;
  const std::unique_ptr<CoordinatorClient> client = Connect(session, &code);
  if (client == nullptr) return code;
  const auto runs = MakeRuns(*client, file->job, options.vary);
  if (!runs.ok()) return ReportError(session.err, runs.status());
  ParityMatrix matrix;
  for (const ParityRun& run : *runs) {
    const absl::Status status = Run(*client, run, &matrix);
    if (!status.ok()) {
      Print(session, matrix);
      return ReportError(session.err, status);
    }
    session.err << "." << std::flush;
  }
  session.err << "\n";
  Print(session, matrix);
  return matrix.holds() ? kExitOk : kExitFailed;
}

}  // namespace weft::client

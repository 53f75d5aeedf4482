#include "client/parity_command.h"

#include <map>
#include <memory>
#include <set>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/follow.h"
#include "client/job_file.h"
#include "client/output.h"
#include "client/parity.h"
#include "client/report.h"
#include "nlohmann/json.hpp"

namespace weft::client {
namespace {

struct Row {
  std::string run;
  std::string result;
  std::string detail;
};

// Runs combinations and keeps the account.
class Matrix {
 public:
  explicit Matrix(CoordinatorClient& client) : client_(client) {}

  // An error ends the matrix; what becomes of a run does not.
  absl::Status Run(const ParityRun& run) {
    ++generated_;
    v1::SubmitJobRequest request;
    *request.mutable_job() = run.job;
    const auto submitted = client_.SubmitJob(std::move(request));
    if (absl::IsInvalidArgument(submitted.status())) {
      ++refused_;
      Add(run, "refused", std::string(submitted.status().message()));
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(submitted.status());
    classes_.insert(run.sum_class);
    ASSIGN_OR_RETURN(const v1::Job job,
                     Follow(client_, submitted->job().id(), {},
                            [](const v1::WatchJobResponse&) {}));
    if (job.state() != v1::JOB_STATE_SUCCEEDED) {
      ++failed_;
      Add(run, "FAILED", job.message());
      return absl::OkStatus();
    }
    ++executed_;
    return Compare(run, job.artifacts());
  }

  bool holds() const {
    return executed_ > 0 && failed_ == 0 && different_ == 0 &&
           leaders_.size() == classes_.size();
  }

  const std::vector<Row>& rows() const { return rows_; }

  std::string Summary() const {
    return absl::StrCat(generated_, " combinations: ", refused_, " refused, ",
                        executed_, " run, ", failed_, " failed; of ",
                        leaders_.size(), " orders of summation, ", identical_,
                        " runs identical, ", within_, " within bounds, ",
                        different_, " different");
  }

 private:
  // With the first of its class to the bit; the first of a class with the very
  // first run, within bounds.
  absl::Status Compare(const ParityRun& run, const std::string& artifacts) {
    if (reference_.empty()) reference_ = artifacts;
    const auto [leader, is_first] = leaders_.insert({run.sum_class, artifacts});
    const std::string& other = is_first ? reference_ : leader->second;
    ASSIGN_OR_RETURN(const ParityComparison comparison,
                     CompareRuns(artifacts, other));
    if (comparison.verdict == ParityVerdict::kIdentical) {
      ++identical_;
      Add(run, artifacts == other ? "reference" : "identical", "");
    } else if (is_first && comparison.verdict == ParityVerdict::kWithinBounds) {
      ++within_;
      Add(run, "within bounds", comparison.detail);
    } else {
      ++different_;
      Add(run, "DIFFERENT", comparison.detail);
    }
    return absl::OkStatus();
  }

  void Add(const ParityRun& run, const std::string& result,
           const std::string& detail) {
    rows_.push_back({run.label, result, detail});
  }

  CoordinatorClient& client_;
  std::string reference_;                       // artifacts of the first run
  std::map<std::string, std::string> leaders_;  // class -> artifacts
  std::set<std::string> classes_;               // of runs that are legal
  std::vector<Row> rows_;
  int generated_ = 0;
  int refused_ = 0;
  int executed_ = 0;
  int failed_ = 0;
  int identical_ = 0;
  int within_ = 0;
  int different_ = 0;
};

absl::StatusOr<std::vector<ParityRun>> MakeRuns(
    CoordinatorClient& client, const v1::TrainingJob& job,
    const std::vector<std::string>& vary) {
  ASSIGN_OR_RETURN(const auto axes, ParseParityAxes(vary));
  ASSIGN_OR_RETURN(const v1::ListWorkersResponse workers, client.ListWorkers());
  std::vector<ParityRun> runs = ParityRuns(job, axes, workers.workers_size());
  if (runs.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("no combination divides batch.global_batch=",
                     job.batch().global_batch(), " over the ",
                     workers.workers_size(), " attached workers"));
  }
  return runs;
}

void Print(Session& session, const Matrix& matrix) {
  if (IsForScripts(session.format)) {
    for (const auto& [run, result, detail] : matrix.rows()) {
      const nlohmann::json line = {
          {"run", run}, {"result", result}, {"detail", detail}};
      session.out << line.dump() << "\n";
    }
  } else {
    TextTable table({"RESULT", "RUN", "DETAIL"});
    for (const auto& [run, result, detail] : matrix.rows()) {
      table.AddRow({result, run, detail});
    }
    session.out << table.ToString();
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
  Matrix matrix(*client);
  for (const ParityRun& run : *runs) {
    const absl::Status status = matrix.Run(run);
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

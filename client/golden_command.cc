#include "client/golden_command.h"

#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "client/follow.h"
#include "client/golden_bf16.h"
#include "client/golden_check.h"
#include "client/golden_tensors.h"
#include "client/json_file.h"
#include "client/output.h"
#include "client/report.h"
#include "client/utf8.h"
#include "nlohmann/json.hpp"

namespace weft::client {
namespace {

// A row of the report and the model it is about.
struct ModelRow {
  std::string model;
  GoldenRow row;
};

// The job when it has succeeded.
absl::StatusOr<v1::Job> RunJob(CoordinatorClient& client,
                               const v1::TrainingJob& job) {
  v1::SubmitJobRequest request;
  *request.mutable_job() = job;
  ASSIGN_OR_RETURN(const v1::SubmitJobResponse submitted,
                   client.SubmitJob(std::move(request)));
  ASSIGN_OR_RETURN(v1::Job ended, Follow(client, submitted.job().id(), {},
                                         [](const v1::WatchJobResponse&) {}));
  if (ended.state() == v1::JOB_STATE_SUCCEEDED) return ended;
  return absl::AbortedError(
      absl::StrCat("job ", ended.id(), " did not succeed: ", ended.message()));
}

// Workers may run in another folder.
absl::StatusOr<std::string> WholePath(const std::string& work) {
  std::error_code error;
  const std::string path = std::filesystem::absolute(work, error).string();
  if (error) return absl::ErrnoToStatus(error.value(), work);
  if (IsUtf8(path)) return path;
  return absl::InvalidArgumentError(
      absl::StrCat("folder ", path, ": its name is not UTF-8, so no job can ",
                   "name what is in it"));
}

// The rows of a run in bf16 of the experts that one in fp32 chose.
absl::StatusOr<std::vector<GoldenRow>> RunInBf16(CoordinatorClient& client,
                                                 const GoldenCase& golden,
                                                 const v1::TrainingJob& job) {
  std::string routing;
  if (!golden.RoutedLayers().empty()) {
    ASSIGN_OR_RETURN(const v1::Job recorded,
                     RunJob(client, MakeRecordingJob(job)));
    routing = recorded.artifacts() + "/routing";
  }
  ASSIGN_OR_RETURN(const v1::Job ended,
                   RunJob(client, MakeBf16Job(job, routing)));
  return CheckBf16(golden, ended.artifacts());
}

absl::StatusOr<std::vector<GoldenRow>> RunCase(
    CoordinatorClient& client, const GoldenCommandOptions& options,
    const std::string& folder) {
  ASSIGN_OR_RETURN(const GoldenCase golden, ReadGoldenCase(folder));
  RETURN_IF_ERROR(CheckReference(golden));
  ASSIGN_OR_RETURN(const std::string work, WholePath(options.work));
  const std::string prefix = absl::StrCat(work, "/", golden.name);
  ASSIGN_OR_RETURN(const v1::TrainingJob job,
                   MakeGoldenJob(golden, options.run, prefix));
  RETURN_IF_ERROR(WriteGoldenData(golden, prefix));
  if (options.compute == v1::NUMBER_FORMAT_BF16) {
    return RunInBf16(client, golden, job);
  }
  ASSIGN_OR_RETURN(const v1::Job ended, RunJob(client, job));
  ASSIGN_OR_RETURN(std::vector<GoldenRow> rows,
                   CheckGolden(golden, ended.spec(), ended.artifacts()));
  // Taps are of one step.
  for (size_t step = 2; step <= golden.steps.size(); ++step) {
    if (golden.steps[step - 1].expert_tokens.empty()) continue;
    ASSIGN_OR_RETURN(const v1::Job again,
                     RunJob(client, MakeRoutingJob(golden, job, step)));
    ASSIGN_OR_RETURN(GoldenRow row, CheckExpertTokens(golden, again.spec(),
                                                      again.artifacts(), step));
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string ToTable(const std::vector<ModelRow>& rows) {
  TextTable table({"MODEL", "CHECK", "ERROR", "BOUND", "HOLDS", "WORST"});
  for (const auto& [model, row] : rows) {
    table.AddRow({model, row.check, absl::StrFormat("%.1e", row.error),
                  absl::StrFormat("%.0e", row.bound), row.ok() ? "yes" : "NO",
                  row.worst});
  }
  return table.ToString();
}

std::string ToJsonLines(const std::vector<ModelRow>& rows) {
  std::string text;
  for (const auto& [model, row] : rows) {
    const nlohmann::json line = {{"model", model},     {"check", row.check},
                                 {"error", row.error}, {"bound", row.bound},
                                 {"holds", row.ok()},  {"worst", row.worst}};
    absl::StrAppend(&text, JsonText(line), "\n");
  }
  return text;
}

}  // namespace

ExitCode Golden(Session& session, const GoldenCommandOptions& options) {
  ExitCode code = kExitFailed;
  const std::unique_ptr<CoordinatorClient> client = Connect(session, &code);
  if (client == nullptr) return code;
  code = kExitOk;
  std::vector<ModelRow> rows;
  for (const std::string& folder : options.folders) {
    const auto checks = RunCase(*client, options, folder);
    if (!checks.ok()) {
      ReportError(
          session.err,
          absl::Status(checks.status().code(),
                       absl::StrCat(folder, ": ", checks.status().message())));
      code = kExitFailed;
      continue;
    }
    const size_t slash = folder.find_last_not_of('/');
    const std::string trimmed = folder.substr(0, slash + 1);
    for (const GoldenRow& row : *checks) {
      rows.push_back({trimmed.substr(trimmed.rfind('/') + 1), row});
      if (!row.ok()) code = kExitFailed;
    }
  }
  if (rows.empty()) return code;
  session.out << (IsForScripts(session.format) ? ToJsonLines(rows)
                                               : ToTable(rows));
  return code;
}

}  // namespace weft::client

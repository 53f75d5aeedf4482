#include "coordinator/http/status_page.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "coordinator/core/job_state.h"
#include "google/protobuf/message.h"
#include "google/protobuf/util/json_util.h"
#include "weft/v1/cluster_service.pb.h"
#include "weft/v1/job_service.pb.h"

namespace weft::coordinator {
namespace {

using Row = std::vector<std::string>;

std::string Escaped(absl::string_view text) {
  return absl::StrReplaceAll(
      text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

// Columns as wide as their widest value, two blanks between them.
std::string DrawTable(const std::vector<Row>& rows) {
  std::vector<size_t> widths(rows[0].size());
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      absl::StrAppend(&line, row[i],
                      std::string(widths[i] + 2 - row[i].size(), ' '));
    }
    absl::StripTrailingAsciiWhitespace(&line);
    absl::StrAppend(&text, line, "\n");
  }
  return Escaped(text);
}

std::string Lower(absl::string_view name) {
  return absl::AsciiStrToLower(std::string(name));
}

Row DescribeWorker(const v1::Worker& worker) {
  const bool busy = worker.state() == v1::WORKER_STATE_BUSY;
  return {worker.id(),
          Lower(absl::StripPrefix(v1::WorkerState_Name(worker.state()),
                                  "WORKER_STATE_")),
          busy ? absl::StrCat(worker.rank()) : "-",
          busy ? worker.job_id() : "-",
          worker.host(),
          worker.device()};
}

Row DescribeJob(const v1::Job& job) {
  const v1::StepMetrics& step = job.last_step();
  const auto known = [&](bool is_known, const std::string& text) {
    return job.has_last_step() && is_known ? text : "-";
  };
  return {
      job.id(),
      Lower(ShortName(job.state())),
      absl::StrCat(job.step(), "/", job.spec().steps()),
      known(true, absl::StrFormat("%.4f", step.loss())),
      known(step.step_seconds() > 0,
            absl::StrFormat("%.0f", step.tokens() / step.step_seconds())),
      known(step.ep_seconds() > 0,
            absl::StrFormat("%.0f%%", 100 - 100 * step.ep_exposed_seconds() /
                                                step.ep_seconds())),
      job.message()};
}

// Fields that are not set have their defaults: readers find every key.
absl::StatusOr<std::string> ToJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string json;
  const auto status =
      google::protobuf::util::MessageToJsonString(message, &json, options);
  if (status.ok()) return json;
  return absl::InternalError(absl::StrCat("no JSON of ", message.GetTypeName(),
                                          ": ", status.ToString()));
}

// The fields of an object, to be put into another.
absl::string_view Fields(absl::string_view object) {
  return object.substr(1, object.size() - 2);
}

}  // namespace

std::string MakeStatusPage(const v1::GetClusterInfoResponse& cluster,
                           const std::vector<v1::Worker>& workers,
                           const v1::ListJobsResponse& jobs) {
  std::vector<Row> worker_rows = {
      {"WORKER", "STATE", "RANK", "JOB", "HOST", "DEVICE"}};
  for (const v1::Worker& worker : workers) {
    worker_rows.push_back(DescribeWorker(worker));
  }
  std::vector<Row> job_rows = {
      {"JOB", "STATE", "STEP", "LOSS", "TOKENS/S", "HIDDEN", "MESSAGE"}};
  for (const v1::Job& job : jobs.jobs()) job_rows.push_back(DescribeJob(job));
  return absl::StrCat(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<title>weft</title></head><body><pre>\nweft ",
      Escaped(cluster.version()), ": ", cluster.workers(),
      " workers attached, ", cluster.idle_workers(), " idle; ",
      cluster.running_jobs(), " jobs run, ", cluster.queued_jobs(), " wait\n\n",
      DrawTable(worker_rows), "\n", DrawTable(job_rows),
      jobs.next_page_token().empty() ? "" : "(older jobs are not shown)\n",
      "\n<a href=\"/statusz\">/statusz</a>  "
      "<a href=\"/metrics\">/metrics</a>  <a href=\"/healthz\">/healthz</a>  "
      "<a href=\"/readyz\">/readyz</a>\n</pre></body></html>\n");
}

absl::StatusOr<std::string> MakeStatusJson(
    const v1::GetClusterInfoResponse& cluster,
    const std::vector<v1::Worker>& workers, const v1::ListJobsResponse& jobs) {
  v1::ListWorkersResponse all;
  for (const v1::Worker& worker : workers) *all.add_workers() = worker;
  ASSIGN_OR_RETURN(const std::string cluster_json, ToJson(cluster));
  ASSIGN_OR_RETURN(const std::string workers_json, ToJson(all));
  ASSIGN_OR_RETURN(const std::string jobs_json, ToJson(jobs));
  return absl::StrCat("{\"cluster\":", cluster_json, ",", Fields(workers_json),
                      ",", Fields(jobs_json), "}\n");
}

}  // namespace weft::coordinator

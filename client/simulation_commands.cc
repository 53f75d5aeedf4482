#include "client/simulation_commands.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "client/cost_file.h"
#include "client/json_file.h"
#include "client/output.h"
#include "client/report.h"
#include "client/simulation.h"
#include "client/step_trace.h"
#include "nlohmann/json.hpp"
#include "schedule/calibrate.h"

namespace weft::client {
namespace {

absl::StatusOr<v1::Job> GetJob(CoordinatorClient& client,
                               const std::string& job_id) {
  v1::GetJobRequest request;
  request.set_job_id(job_id);
  ASSIGN_OR_RETURN(v1::GetJobResponse response, client.GetJob(request));
  return std::move(*response.mutable_job());
}

absl::StatusOr<schedule::CostTable> Fit(CoordinatorClient& client,
                                        const std::vector<std::string>& jobs) {
  std::deque<schedule::Plan> plans;  // the steps point to them
  std::vector<schedule::MeasuredStep> steps;
  for (const std::string& id : jobs) {
    ASSIGN_OR_RETURN(const v1::Job job, GetJob(client, id));
    RETURN_IF_ERROR(CheckMeasured(job));
    ASSIGN_OR_RETURN(schedule::Plan plan, schedule::Compile(job.spec()));
    plans.push_back(std::move(plan));
    ASSIGN_OR_RETURN(StepTrace trace, ReadStepTrace(job, plans.back()));
    steps.push_back(std::move(trace.step));
  }
  return schedule::Calibrate(steps);
}

// Runs of one job and how near the simulator came to them.
struct Row {
  std::string job;  // id of the first
  std::string name;
  size_t runs = 0;
  Comparison step;
};

// Runs of one job side by side, in the order of the first ones.
absl::StatusOr<std::vector<std::vector<v1::Job>>> GetRuns(
    CoordinatorClient& client, const std::vector<std::string>& ids) {
  std::vector<std::vector<v1::Job>> jobs;
  for (const std::string& id : ids) {
    ASSIGN_OR_RETURN(v1::Job job, GetJob(client, id));
    const auto runs = absl::c_find_if(jobs, [&](const auto& of_one) {
      return AreRunsOfOne(of_one.front(), job);
    });
    std::vector<v1::Job>& to = runs != jobs.end() ? *runs : jobs.emplace_back();
    to.push_back(std::move(job));
  }
  return jobs;
}

absl::StatusOr<std::vector<Row>> Compare(CoordinatorClient& client,
                                         const std::vector<std::string>& ids,
                                         const schedule::CostTable& costs) {
  ASSIGN_OR_RETURN(const auto jobs, GetRuns(client, ids));
  std::vector<Row> rows;
  for (const std::vector<v1::Job>& runs : jobs) {
    const v1::Job& first = runs.front();
    ASSIGN_OR_RETURN(const Comparison step, CompareStep(runs, costs),
                     _ << "job " << first.id());
    rows.push_back({first.id(), first.spec().name(), runs.size(), step});
  }
  return rows;
}

std::string Cores(double cores) {
  return cores > 0 ? absl::StrFormat("%.2f cores", cores) : "no bound on cores";
}

std::string Percent(double share) {
  return absl::StrFormat("%+.1f%%", 100 * share);
}

std::string ToTable(const std::vector<Row>& rows) {
  TextTable table({"JOB", "NAME", "RUNS", "STEP PREDICTED", "MEASURED", "ERROR",
                   "PEAK PREDICTED", "MEASURED", "ERROR"});
  for (const auto& [job, name, runs, step] : rows) {
    const bool has_peak = step.measured_peak_bytes > 0;
    table.AddRow({job, name, absl::StrCat(runs),
                  absl::StrFormat("%.6f s", step.predicted_seconds),
                  absl::StrFormat("%.6f s", step.measured_seconds),
                  Percent(step.seconds_error()),
                  absl::StrCat(step.predicted_peak_bytes),
                  has_peak ? absl::StrCat(step.measured_peak_bytes) : "-",
                  has_peak ? Percent(step.peak_error()) : "-"});
  }
  return table.ToString();
}

std::string ToJsonLines(const std::vector<Row>& rows) {
  std::string text;
  for (const auto& [job, name, runs, step] : rows) {
    nlohmann::json line = {{"job", job},
                           {"name", name},
                           {"runs", runs},
                           {"predicted_step_seconds", step.predicted_seconds},
                           {"measured_step_seconds", step.measured_seconds},
                           {"step_error", step.seconds_error()},
                           {"predicted_peak_bytes", step.predicted_peak_bytes}};
    if (step.measured_peak_bytes > 0) {
      line["measured_peak_bytes"] = step.measured_peak_bytes;
      line["peak_error"] = step.peak_error();
    }
    absl::StrAppend(&text, JsonText(line), "\n");
  }
  return text;
}

// Mean and worst of errors without their signs.
std::string Summary(const char* what, const std::vector<double>& errors) {
  double sum = 0;
  double worst = 0;
  for (double error : errors) {
    sum += std::abs(error);
    worst = std::max(worst, std::abs(error));
  }
  return absl::StrFormat(
      "%s: error %.1f%% on average, %.1f%% at worst, of %d\n", what,
      100 * sum / std::max<size_t>(1, errors.size()), 100 * worst,
      errors.size());
}

std::string Summaries(const std::vector<Row>& rows) {
  std::vector<double> seconds;
  std::vector<double> peaks;
  for (const Row& row : rows) {
    seconds.push_back(row.step.seconds_error());
    if (row.step.measured_peak_bytes > 0) {
      peaks.push_back(row.step.peak_error());
    }
  }
  std::string text = Summary("step time", seconds);
  if (!peaks.empty()) text += Summary("peak memory", peaks);
  return text;
}

}  // namespace

ExitCode Trace(Session& session, const std::string& job_id,
               const std::string& out) {
  ExitCode code = kExitFailed;
  const auto client = Connect(session, &code);
  if (client == nullptr) return code;
  const auto job = GetJob(*client, job_id);
  if (!job.ok()) return ReportError(session.err, job.status());
  const auto trace = MergeTraces(*job);
  if (!trace.ok()) return ReportError(session.err, trace.status());
  if (out.empty()) {
    session.out << *trace;
    return kExitOk;
  }
  const absl::Status written = WriteTextFile(out, *trace);
  return written.ok() ? kExitOk : ReportError(session.err, written);
}

ExitCode CalibrateJobs(Session& session, const std::vector<std::string>& jobs,
                       const std::string& out) {
  ExitCode code = kExitFailed;
  const auto client = Connect(session, &code);
  if (client == nullptr) return code;
  const auto costs = Fit(*client, jobs);
  if (!costs.ok()) return ReportError(session.err, costs.status());
  const absl::Status written = WriteCosts(*costs, out);
  if (!written.ok()) return ReportError(session.err, written);
  session.err << absl::StrFormat(
      "%d classes of ops from %d steps; %s, %.0f%% slower by each further "
      "stream, %.3g s to wake a stream, %.3g s a step outside ops\n",
      costs->ops.size(), jobs.size(), Cores(costs->sharing.cores),
      100 * costs->sharing.crowding, costs->wait_seconds, costs->step_seconds);
  return kExitOk;
}

ExitCode SimulateJobs(Session& session, const std::vector<std::string>& jobs,
                      const std::string& costs_path) {
  ExitCode code = kExitFailed;
  const auto costs = ReadCosts(costs_path);
  if (!costs.ok()) return ReportError(session.err, costs.status());
  const auto client = Connect(session, &code);
  if (client == nullptr) return code;
  const auto rows = Compare(*client, jobs, *costs);
  if (!rows.ok()) return ReportError(session.err, rows.status());
  session.out << (IsForScripts(session.format) ? ToJsonLines(*rows)
                                               : ToTable(*rows));
  session.err << Summaries(*rows);
  return kExitOk;
}

}  // namespace weft::client

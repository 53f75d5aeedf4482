#include "client/view_commands.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "client/cost_file.h"
#include "client/describe.h"
#include "client/explain.h"
#include "client/job_file.h"
#include "client/offline_plan.h"
#include "client/report.h"
#include "client/simulation.h"
#include "client/version.h"

namespace weft::client {
namespace {

constexpr int kPageSize = 200;

// Pages through jobs until there are no more, or `limit` of them.
absl::StatusOr<v1::ListJobsResponse> ListJobs(CoordinatorClient& client,
                                              int limit) {
  v1::ListJobsResponse all;
  v1::ListJobsRequest request;
  while (true) {
    const int wanted = limit == 0 ? kPageSize : limit - all.jobs_size();
    request.set_page_size(std::min(wanted, kPageSize));
    auto page = client.ListJobs(request);
    if (!page.ok()) return page.status();
    for (v1::Job& job : *page->mutable_jobs()) {
      if (limit != 0 && all.jobs_size() == limit) break;
      *all.add_jobs() = std::move(job);
    }
    request.set_page_token(page->next_page_token());
    const bool is_full = limit != 0 && all.jobs_size() >= limit;
    if (is_full) all.set_next_page_token(page->next_page_token());
    if (is_full || page->next_page_token().empty()) return all;
  }
}

// The job, or nothing when the error was reported.
std::optional<v1::Job> FetchJob(Session& session, const std::string& job_id,
                                ExitCode* code) {
  const auto client = Connect(session, code);
  if (client == nullptr) return std::nullopt;
  v1::GetJobRequest request;
  request.set_job_id(job_id);
  auto response = client->GetJob(request);
  if (response.ok()) return response->job();
  *code = ReportError(session.err, response.status());
  return std::nullopt;
}

void PrintJobs(Session& session, const std::vector<v1::Job>& jobs) {
  if (session.format == Format::kName) {
    for (const v1::Job& job : jobs) session.out << job.id() << "\n";
    return;
  }
  session.out << JobTable(jobs, absl::Now()).ToString();
}

// The plan, or nothing when the error was reported.
std::optional<v1::GetPlanResponse> FetchPlan(Session& session,
                                             const PlanOptions& options,
                                             ExitCode* code) {
  const auto client = Connect(session, code);
  if (client == nullptr) return std::nullopt;
  v1::GetPlanRequest request;
  request.set_job_id(options.job_id);
  request.set_rank(options.rank);
  auto plan = client->GetPlan(request);
  if (plan.ok()) return *std::move(plan);
  *code = ReportError(session.err, plan.status());
  return std::nullopt;
}

// As FetchPlan. `job` gets what the file says.
std::optional<v1::GetPlanResponse> CompileFile(Session& session,
                                               const PlanOptions& options,
                                               v1::TrainingJob* job,
                                               ExitCode* code) {
  *code = kExitFailed;
  auto file = ReadJobFile(options.file.path, options.file.sets);
  if (!file.ok()) {
    ReportError(session.err, file.status());
    return std::nullopt;
  }
  if (!file->errors.empty()) {
    ReportErrors(session.err, file->errors);
    return std::nullopt;
  }
  auto plan = CompilePlan(file->job, options.rank, session.columns);
  *job = std::move(file->job);
  if (plan.ok()) return *std::move(plan);
  ReportError(session.err, plan.status(), &file->origins);
  return std::nullopt;
}

// Prints what the simulator says of a step, and writes its trace.
ExitCode ShowSimulation(Session& session, const PlanOptions& options,
                        const v1::TrainingJob& job) {
  std::optional<schedule::CostTable> costs;
  if (!options.costs.empty()) {
    auto table = ReadCosts(options.costs);
    if (!table.ok()) return ReportError(session.err, table.status());
    costs = *std::move(table);
  }
  const auto step = PredictStep(job, costs.has_value() ? &*costs : nullptr);
  if (!step.ok()) return ReportError(session.err, step.status());
  session.err << step->record.ToString(Format::kTable);
  if (options.trace.empty()) return kExitOk;
  const absl::Status written = WriteTextFile(options.trace, step->trace);
  return written.ok() ? kExitOk : ReportError(session.err, written);
}

// What a job takes of a rank's device; empty when its plan cannot be had.
std::string PlannedMemory(Session& session, const v1::Job& job) {
  ExitCode code = kExitFailed;
  const auto client = Connect(session, &code);
  if (client == nullptr) return "";
  v1::GetPlanRequest request;
  request.set_job_id(job.id());
  const auto plan = client->GetPlan(request);
  if (!plan.ok()) return "";
  return MemoryRecord(plan->summary().memory()).ToString(Format::kTable);
}

// Leaves the rules whose field is `path` or inside it; all when it is empty.
void KeepRulesOf(const std::string& path, v1::ListRulesResponse* all) {
  v1::ListRulesResponse kept;
  const auto is_wanted = [&](const std::string& field) {
    return path.empty() || field == path || absl::StartsWith(field, path + ".");
  };
  for (const v1::Rule& rule : all->rules()) {
    if (is_wanted(rule.field())) *kept.add_rules() = rule;
  }
  for (const v1::LiftedRule& rule : all->lifted()) {
    if (is_wanted(rule.field())) *kept.add_lifted() = rule;
  }
  all->Swap(&kept);
}

}  // namespace

ExitCode GetJobs(Session& session, int limit) {
  ExitCode code = kExitFailed;
  const auto client = Connect(session, &code);
  if (client == nullptr) return code;
  const auto response = ListJobs(*client, limit);
  if (!response.ok()) return ReportError(session.err, response.status());
  if (IsForScripts(session.format)) {
    PrintMessage(session, *response);
    return kExitOk;
  }
  if (response->jobs_size() == 0 && session.format == Format::kTable) {
    session.err << "no jobs; submit one with: weftctl submit -f job.yaml\n";
    return kExitOk;
  }
  PrintJobs(session, {response->jobs().begin(), response->jobs().end()});
  if (!response->next_page_token().empty()) {
    session.err << "there are more; see them with --limit=0\n";
  }
  return kExitOk;
}

ExitCode GetJob(Session& session, const std::string& job_id) {
  ExitCode code = kExitFailed;
  const auto job = FetchJob(session, job_id, &code);
  if (!job.has_value()) return code;
  if (IsForScripts(session.format)) {
    PrintMessage(session, *job);
  } else {
    PrintJobs(session, {*job});
  }
  return kExitOk;
}

ExitCode GetWorkers(Session& session) {
  ExitCode code = kExitFailed;
  const auto client = Connect(session, &code);
  if (client == nullptr) return code;
  const auto response = client->ListWorkers();
  if (!response.ok()) return ReportError(session.err, response.status());
  if (IsForScripts(session.format)) {
    PrintMessage(session, *response);
    return kExitOk;
  }
  if (session.format == Format::kName) {
    for (const v1::Worker& worker : response->workers()) {
      session.out << worker.id() << "\n";
    }
    return kExitOk;
  }
  if (response->workers_size() == 0) {
    session.err << "no workers are attached\n";
    return kExitOk;
  }
  session.out << WorkerTable(
                     {response->workers().begin(), response->workers().end()},
                     absl::Now())
                     .ToString();
  return kExitOk;
}

ExitCode Describe(Session& session, const std::string& job_id) {
  ExitCode code = kExitFailed;
  const auto job = FetchJob(session, job_id, &code);
  if (!job.has_value()) return code;
  if (IsForScripts(session.format)) {
    PrintMessage(session, *job);
  } else {
    session.out << DescribeJob(*job, absl::Now())
                << PlannedMemory(session, *job);
  }
  return kExitOk;
}

ExitCode DescribeOneWorker(Session& session, const std::string& worker_id) {
  ExitCode code = kExitFailed;
  const auto client = Connect(session, &code);
  if (client == nullptr) return code;
  const auto response = client->ListWorkers();
  if (!response.ok()) return ReportError(session.err, response.status());
  for (const v1::Worker& worker : response->workers()) {
    if (worker.id() != worker_id) continue;
    if (IsForScripts(session.format)) {
      PrintMessage(session, worker);
    } else {
      session.out << DescribeWorker(worker, absl::Now());
    }
    return kExitOk;
  }
  return ReportError(
      session.err, absl::NotFoundError(absl::StrCat("no worker ", worker_id)));
}

ExitCode ShowPlan(Session& session, const PlanOptions& options) {
  ExitCode code = kExitFailed;
  const bool is_known_job = options.file.path.empty();
  v1::TrainingJob job;
  const auto plan = is_known_job ? FetchPlan(session, options, &code)
                                 : CompileFile(session, options, &job, &code);
  if (!plan.has_value()) return code;
  if (IsForScripts(session.format)) {
    PrintMessage(session, *plan);
  } else {
    session.out << (options.is_timeline ? plan->timeline() : plan->text());
    session.err << PlanRecord(plan->summary()).ToString(Format::kTable);
  }
  if (options.costs.empty() && options.trace.empty()) return kExitOk;
  if (is_known_job) {
    const auto known = FetchJob(session, options.job_id, &code);
    if (!known.has_value()) return code;
    job = known->spec();
  }
  return ShowSimulation(session, options, job);
}

ExitCode Explain(Session& session, const std::string& path) {
  const auto text = ExplainField(path);
  if (!text.ok()) return ReportError(session.err, text.status());
  if (IsForScripts(session.format)) {
    Record record;
    record.Add("field", path).Add("text", *text);
    session.out << record.ToString(session.format);
  } else {
    session.out << *text;
  }
  return kExitOk;
}

ExitCode ListRules(Session& session, const std::string& path) {
  ExitCode code = kExitFailed;
  if (!path.empty()) {
    const absl::Status known = CheckField(path);
    if (!known.ok()) return ReportError(session.err, known);
  }
  const auto client = Connect(session, &code);
  if (client == nullptr) return code;
  auto response = client->ListRules();
  if (!response.ok()) return ReportError(session.err, response.status());
  KeepRulesOf(path, &*response);
  if (IsForScripts(session.format)) {
    PrintMessage(session, *response);
    return kExitOk;
  }
  if (response->rules().empty() && response->lifted().empty()) {
    session.err << "no rule is about " << path << "\n";
    return kExitOk;
  }
  TextTable rules({"FIELD", "MUST BE", "READS"});
  for (const v1::Rule& rule : response->rules()) {
    rules.AddRow(
        {rule.field(), rule.allowed(), absl::StrJoin(rule.reads(), ", ")});
  }
  session.out << rules.ToString();
  if (response->lifted().empty()) return kExitOk;
  TextTable lifted({"FIELD", "LEGAL, THOUGH OFTEN REFUSED", "BECAUSE"});
  for (const v1::LiftedRule& rule : response->lifted()) {
    lifted.AddRow({rule.field(), rule.refused_elsewhere(), rule.why_legal()});
  }
  session.out << "\n" << lifted.ToString();
  return kExitOk;
}

ExitCode Version(Session& session, bool is_client_only) {
  Record record;
  record.Add("client", kVersion);
  ExitCode code = kExitOk;
  if (!is_client_only) {
    const auto client = Connect(session, &code);
    if (client != nullptr) {
      const auto info = client->GetClusterInfo();
      if (info.ok()) {
        record.Add("coordinator", info->version());
      } else {
        code = ReportError(session.err, info.status());
      }
    }
  }
  session.out << record.ToString(session.format);
  return code;
}

}  // namespace weft::client

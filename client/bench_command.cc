#include "client/bench_command.h"

#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/bench.h"
#include "client/bench_ops.h"
#include "client/ceilings.h"
#include "client/follow.h"
#include "client/job_file.h"
#include "client/report.h"
#include "client/simulation_commands.h"
#include "client/step_trace.h"
#include "schedule/plan.h"

namespace weft::client {
namespace {

// A job that has run, to be timed.
struct Timed {
  BenchSteps measured;
  v1::MemoryPlan memory;
  v1::Job ended;
};

v1::TrainingJob JobToTime(v1::TrainingJob job,
                          const BenchCommandOptions& options) {
  job.set_steps(options.steps);
  // A schedule of the learning rate may not fit into so few steps.
  v1::OptimizerConfig& optimizer = *job.mutable_optimizer();
  optimizer.clear_warmup_steps();
  optimizer.clear_decay();
  optimizer.clear_min_learning_rate();
  optimizer.clear_wsd_decay_steps();
  optimizer.clear_wsd_shape();
  job.clear_eval();
  job.clear_output();
  job.mutable_output()->set_trace_step(options.steps);
  job.mutable_guards()->set_replica_check_steps(0);
  job.mutable_guards()->set_stuck_parameter_steps(0);
  if (options.is_balanced) job.mutable_bench()->set_balanced_routing(true);
  return job;
}

absl::StatusOr<Timed> Run(CoordinatorClient& client, v1::TrainingJob job,
                          int64_t warmup) {
  Timed timed;
  v1::ValidateJobRequest validate;
  *validate.mutable_job() = job;
  ASSIGN_OR_RETURN(const v1::ValidateJobResponse valid,
                   client.ValidateJob(validate));
  timed.memory = valid.plan().memory();
  v1::SubmitJobRequest request;
  *request.mutable_job() = job;
  ASSIGN_OR_RETURN(const v1::SubmitJobResponse submitted,
                   client.SubmitJob(std::move(request)));
  timed.measured.job = std::move(job);
  const auto note = [&](const v1::WatchJobResponse& message) {
    if (message.has_step() && message.step().step() > warmup) {
      timed.measured.steps.push_back(message.step());
    }
  };
  ASSIGN_OR_RETURN(timed.ended, Follow(client, submitted.job().id(), {}, note));
  const v1::Job& ended = timed.ended;
  if (ended.state() != v1::JOB_STATE_SUCCEEDED) {
    return absl::AbortedError(absl::StrCat(
        "job ", ended.id(), " did not succeed: ", ended.message()));
  }
  if (timed.measured.steps.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("job ", ended.id(), " told of no step behind the ", warmup,
                     " to warm up"));
  }
  return timed;
}

absl::Status AddHidden(CoordinatorClient& client, const Timed& normal,
                       int64_t warmup, nlohmann::ordered_json& report) {
  v1::TrainingJob job = normal.measured.job;
  job.clear_output();
  job.mutable_bench()->set_exchanges(v1::EXCHANGES_LEFT_OUT);
  ASSIGN_OR_RETURN(const Timed left_out, Run(client, job, warmup));
  job.mutable_bench()->set_exchanges(v1::EXCHANGES_ALONE);
  ASSIGN_OR_RETURN(const Timed alone, Run(client, job, warmup));
  ASSIGN_OR_RETURN(
      const HiddenShare hidden,
      HiddenShareOf(normal.measured, left_out.measured, alone.measured));
  report["hidden_communication"] = {{"share", hidden.share()},
                                    {"step_seconds", hidden.step},
                                    {"without_exchanges", hidden.without},
                                    {"exchanges_alone", hidden.alone}};
  return absl::OkStatus();
}

// What the workers of a job say of their device; empty when none is there.
std::string DeviceOf(CoordinatorClient& client, const v1::Job& job) {
  const auto workers = client.ListWorkers();
  if (!workers.ok() || job.workers().empty()) return "";
  for (const v1::Worker& worker : workers->workers()) {
    if (worker.id() == job.workers(0)) return worker.device();
  }
  return "";
}

// Where the time of the traced step went.
struct OpReport {
  std::vector<OpKindTime> kinds;
  const Ceilings* ceilings = nullptr;
};

absl::StatusOr<OpReport> ReadOps(CoordinatorClient& client,
                                 const v1::Job& job) {
  ASSIGN_OR_RETURN(const schedule::Plan plan, schedule::Compile(job.spec()));
  ASSIGN_OR_RETURN(const StepTrace trace, ReadStepTrace(job, plan));
  OpReport report;
  report.ceilings =
      FindCeilings(DeviceOf(client, job), plan.shape.compute_dtype);
  report.kinds = OpKindTimes(trace.step, report.ceilings);
  return report;
}

void Print(Session& session, const OpReport& ops,
           nlohmann::ordered_json report) {
  if (IsForScripts(session.format)) {
    report["ops"] = OpKindJson(ops.kinds);
    session.out << report.dump() << "\n";
    return;
  }
  for (const auto& [key, value] : report.items()) {
    session.out << key << ": "
                << (value.is_string() ? value.get<std::string>() : value.dump())
                << "\n";
  }
  if (!ops.kinds.empty()) {
    session.out << "\n" << OpKindTable(ops.kinds, ops.ceilings);
  }
}

}  // namespace

ExitCode Bench(Session& session, const BenchCommandOptions& options) {
  if (options.warmup >= options.steps) {
    session.err << "error: --warmup=" << options.warmup << " is not below "
                << "--steps=" << options.steps << "\n";
    return kExitUsage;
  }
  const auto file = ReadJobFile(options.file.path, options.file.sets);
  if (!file.ok()) return ReportError(session.err, file.status());
  if (!file->errors.empty()) return ReportErrors(session.err, file->errors);
  ExitCode code = kExitFailed;
  const std::unique_ptr<CoordinatorClient> client = Connect(session, &code);
  if (client == nullptr) return code;
  const auto timed =
      Run(*client, JobToTime(file->job, options), options.warmup);
  if (!timed.ok()) return ReportError(session.err, timed.status());
  nlohmann::ordered_json report = Report(timed->measured, timed->memory);
  if (options.measures_hidden) {
    const absl::Status status =
        AddHidden(*client, *timed, options.warmup, report);
    if (!status.ok()) return ReportError(session.err, status);
  }
  // Ranks on several hosts share no clock, and their folder may be elsewhere.
  const absl::StatusOr<OpReport> ops = ReadOps(*client, timed->ended);
  if (!ops.ok()) {
    session.err << "no times of ops: " << ops.status().message() << "\n";
  }
  Print(session, ops.value_or(OpReport()), std::move(report));
  if (options.trace.empty()) return kExitOk;
  return Trace(session, timed->ended.id(), options.trace);
}

}  // namespace weft::client

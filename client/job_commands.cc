#include "client/job_commands.h"

#include <iostream>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "client/describe.h"
#include "client/follow.h"
#include "client/interrupt_note.h"
#include "client/job_file.h"
#include "client/job_inputs.h"
#include "client/message_text.h"
#include "client/progress.h"
#include "client/report.h"
#include "client/state_name.h"
#include "client/utf8.h"

namespace weft::client {
namespace {

// The job file, or nothing when it was reported as wrong.
std::optional<JobFile> LoadJob(const Session& session,
                               const JobFileOptions& options) {
  auto file = ReadJobFile(options.path, options.sets);
  if (!file.ok()) {
    ReportError(session.err, file.status());
    return std::nullopt;
  }
  if (!file->errors.empty()) {
    ReportErrors(session.err, file->errors);
    return std::nullopt;
  }
  return *std::move(file);
}

void PrintJob(const Session& session, const v1::Job& job,
              const std::string& verb) {
  if (IsForScripts(session.format)) {
    PrintMessage(session, job);
  } else if (session.format == Format::kName) {
    session.out << job.id() << "\n";
  } else {
    session.out << "job " << job.id() << " " << verb << "\n";
  }
  session.out.flush();
}

template <typename Warnings>
void PrintWarnings(const Session& session, const Warnings& warnings) {
  for (const std::string& warning : warnings) {
    session.err << "warning: " << Printable(warning) << "\n";
  }
}

void PrintEnd(const Session& session, const v1::Job& job) {
  if (session.format == Format::kTable) {
    session.out << DescribeEnd(job) << std::flush;
  } else {
    PrintJob(session, job, StateName(job.state()));
  }
}

// Why a job did not succeed, and what may help.
void PrintReason(const Session& session, const v1::Job& job) {
  if (job.state() == v1::JOB_STATE_SUCCEEDED || job.message().empty()) return;
  session.err << "error: " << Printable(job.message()) << "\n";
  const std::string& prefix = job.spec().data().prefix();
  if (!prefix.empty() && absl::StrContains(job.message(), prefix) &&
      absl::StrContains(job.message(), "NOT_FOUND")) {
    session.err << "hint: make the dataset with: weftctl data prepare --input "
                   "TEXT --output "
                << Printable(prefix) << "\n";
  }
}

ExitCode FollowToEnd(Session& session, CoordinatorClient& client,
                     const std::string& job_id, const WatchOptions& options,
                     bool is_streaming) {
  ProgressPrinter::Options progress;
  progress.is_terminal = session.is_err_terminal;
  progress.columns = session.columns;
  progress.every_steps = options.every_steps;
  progress.every_seconds = options.every_seconds;
  FollowOptions follow;
  follow.deadline = absl::Now() + options.timeout;
  absl::StatusOr<v1::Job> job;
  {
    const InterruptNote note;
    ProgressPrinter printer(progress, session.err, RealClock());
    job =
        Follow(client, job_id, follow, [&](const v1::WatchJobResponse& update) {
          if (is_streaming) session.out << ToJsonLine(update);
          if (is_streaming) session.out.flush();
          if (!options.is_quiet) printer.Observe(update);
        });
  }
  if (!job.ok()) {
    const ExitCode code = ReportError(session.err, job.status());
    return absl::IsDeadlineExceeded(job.status()) ? kExitTimedOut : code;
  }
  if (!is_streaming) PrintEnd(session, *job);
  PrintReason(session, *job);
  return ExitCodeOf(job->state());
}

// Whether the user wants what is asked.
bool Confirm(const Session& session, const std::string& question) {
  session.err << question << " [y/N] " << std::flush;
  std::string answer;
  std::getline(std::cin, answer);
  return answer == "y" || answer == "Y" || answer == "yes";
}

}  // namespace

ExitCode Submit(Session& session, const SubmitOptions& options) {
  ExitCode code = kExitFailed;
  const auto file = LoadJob(session, options.file);
  if (!file.has_value()) return kExitFailed;
  const auto client = Connect(session, &code);
  if (client == nullptr) return code;
  v1::SubmitJobRequest request;
  request.set_request_id(options.request_id.empty() ? NewRequestId()
                                                    : options.request_id);
  *request.mutable_job() = file->job;
  const auto response = client->SubmitJob(request);
  if (!response.ok()) {
    code = ReportError(session.err, response.status(), &file->origins);
    if (absl::IsDeadlineExceeded(response.status())) {
      session.err << "hint: the job may still be queued; submit it again with "
                     "--request-id="
                  << request.request_id() << " and it is queued once only\n";
    }
    return code;
  }
  const v1::Job& job = response->job();
  PrintWarnings(session, job.warnings());
  if (!options.is_waiting) {
    PrintJob(session, job, StateName(job.state()));
    if (session.format == Format::kTable) {
      session.err << "follow it with: weftctl watch " << job.id() << "\n";
    }
    return kExitOk;
  }
  if (!options.watch.is_quiet) session.err << "job " << job.id() << "\n";
  return FollowToEnd(session, *client, job.id(), options.watch, false);
}

ExitCode Validate(Session& session, const JobFileOptions& options) {
  ExitCode code = kExitFailed;
  const auto file = LoadJob(session, options);
  if (!file.has_value()) return kExitFailed;
  const auto client = Connect(session, &code);
  if (client == nullptr) return code;
  v1::ValidateJobRequest request;
  *request.mutable_job() = file->job;
  auto response = client->ValidateJob(request);
  if (!response.ok()) {
    return ReportError(session.err, response.status(), &file->origins);
  }
  for (const std::string& warning : InputWarnings(file->job)) {
    response->add_warnings(warning);
  }
  if (IsForScripts(session.format)) {
    PrintMessage(session, *response);
    return kExitOk;
  }
  PrintWarnings(session, response->warnings());
  session.out
      << "the job is valid, but for its files, which workers open as it "
         "starts\n"
      << PlanRecord(response->plan()).ToString(Format::kTable);
  return kExitOk;
}

ExitCode Watch(Session& session, const std::string& job_id,
               const WatchOptions& options) {
  ExitCode code = kExitFailed;
  const auto client = Connect(session, &code);
  if (client == nullptr) return code;
  const bool is_streaming =
      session.format == Format::kJson && !options.is_quiet;
  return FollowToEnd(session, *client, job_id, options, is_streaming);
}

ExitCode Cancel(Session& session, const CancelOptions& options) {
  ExitCode code = kExitFailed;
  if (!options.is_sure && !session.is_in_terminal) {
    session.err << "error: cancelling a job needs --yes where nobody can be "
                   "asked\n";
    return kExitUsage;
  }
  if (!options.is_sure &&
      !Confirm(session, absl::StrCat("cancel job ", options.job_id, "?"))) {
    session.err << "not cancelled\n";
    return kExitFailed;
  }
  const auto client = Connect(session, &code);
  if (client == nullptr) return code;
  v1::CancelJobRequest request;
  request.set_job_id(options.job_id);
  request.set_reason(options.reason);
  const auto response = client->CancelJob(request);
  if (!response.ok()) return ReportError(session.err, response.status());
  PrintJob(session, response->job(), StateName(response->job().state()));
  return kExitOk;
}

}  // namespace weft::client

// The part of the dispatcher that deals with clients.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "base/describe.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "coordinator/core/admission.h"
#include "coordinator/core/dispatcher.h"
#include "coordinator/core/job_state.h"
#include "google/protobuf/util/message_differencer.h"
#include "schedule/rules/validate.h"
#include "weft/v1/job_service.pb.h"

namespace weft::coordinator {
namespace {

using ::google::protobuf::util::MessageDifferencer;

constexpr size_t kMaxRequestIdSize = 128;
constexpr int kDefaultPageSize = 50;
constexpr int kMaxPageSize = 1000;

absl::Status ShuttingDown() {
  return absl::UnavailableError("the coordinator is shutting down");
}

std::string NotLegal(const absl::Status& status) {
  return absl::StrCat("not legal for this version: ", status.message());
}

}  // namespace

absl::Status Dispatcher::RestoreLocked() {
  ASSIGN_OR_RETURN(std::vector<v1::Job> jobs, options_.store->UnfinishedJobs());
  for (v1::Job& job : jobs) RETURN_IF_ERROR(RestoreJobLocked(std::move(job)));
  SettleLocked();
  return absl::OkStatus();
}

absl::Status Dispatcher::RestoreJobLocked(v1::Job job) {
  ASSIGN_OR_RETURN(
      std::vector<v1::WatchJobResponse> updates,
      options_.store->LatestUpdates(job.id(), options_.watch.log_size));
  hub_.Restore(job, updates);
  auto active = std::make_unique<ActiveJob>();
  active->job = std::move(job);
  v1::Job& restored = active->job;
  const schedule::Validation validation = schedule::Validate(restored.spec());
  if (JobRun::IsCancelling(restored)) {
    ledger_.Move(&restored, v1::JOB_STATE_CANCELLED, restored.message());
  } else if (restored.state() != v1::JOB_STATE_QUEUED) {
    ledger_.Move(&restored, v1::JOB_STATE_FAILED,
                 absl::StrCat("the coordinator restarted while the job was ",
                              ShortName(restored.state()), ", after step ",
                              restored.step(), "; submit it again"));
  } else if (!validation.violations.empty()) {
    ledger_.Move(&restored, v1::JOB_STATE_FAILED,
                 NotLegal(schedule::ToStatus(validation.violations)));
  } else {
    queue_.push_back(restored.id());
    if (options_.observer != nullptr) options_.observer->OnJobState(restored);
  }
  const std::string id = restored.id();
  jobs_[id] = std::move(active);
  return absl::OkStatus();
}

void Dispatcher::CompileNext() {
  v1::Job job;
  {
    MutexLock lock(&mu_);
    if (queue_.empty()) return;
    const ActiveJob& head = *FindLocked(queue_.front());
    if (head.plan != nullptr) return;
    job = head.job;
  }
  absl::StatusOr<AdmittedJob> admitted = Admit(job.spec(), *options_.compiler);
  {
    MutexLock lock(&mu_);
    ActiveJob* active = FindLocked(job.id());
    if (active == nullptr) return;  // cancelled
    if (admitted.ok()) {
      active->plan = std::move(admitted->plan);
    } else {
      ledger_.Move(&active->job, v1::JOB_STATE_FAILED,
                   NotLegal(admitted.status()));
    }
    SettleLocked();
  }
  outbox_.Run();
}

absl::StatusOr<v1::Job> Dispatcher::Submit(
    const v1::SubmitJobRequest& request) {
  if (request.request_id().size() > kMaxRequestIdSize) {
    return schedule::ToStatus(
        {{"request_id",
          absl::StrCat("request_id has ", request.request_id().size(),
                       " bytes; must have at most ", kMaxRequestIdSize)}});
  }
  {
    // A retry gets its job whatever the rules have become since.
    MutexLock lock(&mu_);
    absl::StatusOr<v1::Job> earlier = FindSubmittedLocked(request);
    if (earlier.ok() || !absl::IsNotFound(earlier.status())) return earlier;
  }
  // Compiling takes its time; no lock is held.
  ASSIGN_OR_RETURN(AdmittedJob admitted,
                   Admit(request.job(), *options_.compiler));
  absl::StatusOr<v1::Job> result = v1::Job();
  {
    MutexLock lock(&mu_);
    if (is_shut_down_) return ShuttingDown();
    absl::StatusOr<v1::Job> earlier = FindSubmittedLocked(request);
    if (earlier.ok() || !absl::IsNotFound(earlier.status())) return earlier;
    RETURN_IF_ERROR(CheckFitLocked(*admitted.plan));
    auto active = std::make_unique<ActiveJob>();
    v1::Job& job = active->job;
    *job.mutable_spec() = request.job();
    ASSIGN_OR_RETURN(*job.mutable_id(), NewJobIdLocked(job.spec()));
    job.set_artifacts(absl::StrCat(options_.artifacts_dir, "/", job.id()));
    job.set_arena_bytes(admitted.plan->summary.arena_bytes());
    for (const std::string& warning : admitted.warnings) {
      job.add_warnings(warning);
    }
    RETURN_IF_ERROR(ledger_.Create(&job, request.request_id(), "queued"));
    active->plan = std::move(admitted.plan);
    queue_.push_back(job.id());
    const std::string id = job.id();
    const std::string warning = SubmitWarningLocked(*active);
    jobs_[id] = std::move(active);
    SettleLocked();
    result = GetLocked(id);
    // Only here: it is about now.
    if (result.ok() && !warning.empty()) result->add_warnings(warning);
  }
  outbox_.Run();
  return result;
}

absl::StatusOr<v1::ValidateJobResponse> Dispatcher::ValidateOnly(
    const v1::ValidateJobRequest& request) {
  ASSIGN_OR_RETURN(const AdmittedJob admitted,
                   Admit(request.job(), *options_.compiler));
  {
    MutexLock lock(&mu_);
    RETURN_IF_ERROR(CheckFitLocked(*admitted.plan));
  }
  v1::ValidateJobResponse response;
  for (const std::string& warning : admitted.warnings) {
    response.add_warnings(warning);
  }
  *response.mutable_plan() = admitted.plan->summary;
  return response;
}

absl::StatusOr<v1::Job> Dispatcher::FindSubmittedLocked(
    const v1::SubmitJobRequest& request) {
  if (request.request_id().empty()) return absl::NotFoundError("");
  ASSIGN_OR_RETURN(v1::Job job,
                   options_.store->FindByRequestId(request.request_id()));
  if (MessageDifferencer::Equals(job.spec(), request.job())) {
    return GetLocked(job.id());
  }
  return absl::AlreadyExistsError(
      absl::StrCat("request_id=", Quoted(request.request_id()),
                   " was used for another job, ", job.id(),
                   "; draw a new one for a new job"));
}

absl::StatusOr<std::string> Dispatcher::NewJobIdLocked(
    const v1::TrainingJob& spec) {
  const std::string name = spec.name().empty() ? "job" : spec.name();
  for (int attempt = 0; attempt < 16; ++attempt) {
    const uint32_t bits = options_.random();
    std::string id = attempt < 8
                         ? absl::StrFormat("%s-%04x", name, bits & 0xffff)
                         : absl::StrFormat("%s-%08x", name, bits);
    const absl::StatusOr<v1::Job> taken = options_.store->GetJob(id);
    if (absl::IsNotFound(taken.status())) return id;
    if (!taken.ok()) return taken.status();
  }
  return absl::UnavailableError("found no free job id; try again");
}

absl::StatusOr<v1::Job> Dispatcher::Cancel(
    const v1::CancelJobRequest& request) {
  absl::StatusOr<v1::Job> result = v1::Job();
  {
    MutexLock lock(&mu_);
    ASSIGN_OR_RETURN(const v1::Job known, GetLocked(request.job_id()));
    if (IsFinal(known.state())) {
      return absl::FailedPreconditionError(
          absl::StrCat("job ", known.id(),
                       " has already ended: ", ShortName(known.state())));
    }
    ActiveJob& active = *FindLocked(known.id());  // as it has not ended
    if (active.run != nullptr) {
      active.run->Cancel(request.reason());
    } else {
      ledger_.Move(&active.job, v1::JOB_STATE_CANCELLED,
                   WithReason("cancelled while queued", request.reason()));
    }
    result = active.job;
    SettleLocked();
  }
  outbox_.Run();
  return result;
}

absl::StatusOr<v1::Job> Dispatcher::Get(absl::string_view job_id) {
  MutexLock lock(&mu_);
  return GetLocked(job_id);
}

absl::StatusOr<v1::Job> Dispatcher::GetLocked(absl::string_view job_id) {
  if (const v1::Job* newer = FindNewerLocked(job_id)) return *newer;
  return options_.store->GetJob(job_id);
}

const v1::Job* Dispatcher::FindNewerLocked(absl::string_view job_id) {
  if (const ActiveJob* active = FindLocked(job_id)) return &active->job;
  return ledger_.FindUnsaved(job_id);
}

Dispatcher::ActiveJob* Dispatcher::FindLocked(absl::string_view job_id) {
  auto it = jobs_.find(std::string(job_id));
  return it == jobs_.end() ? nullptr : it->second.get();
}

absl::StatusOr<v1::ListJobsResponse> Dispatcher::List(
    const v1::ListJobsRequest& request) {
  int64_t begin = 0;
  if (!request.page_token().empty() &&
      (!absl::SimpleAtoi(request.page_token(), &begin) || begin <= 0)) {
    return schedule::ToStatus(
        {{"page_token",
          absl::StrCat("page_token=", Quoted(request.page_token()),
                       "; must be the next_page_token of a response")}});
  }
  if (request.page_size() < 0) {
    return schedule::ToStatus(
        {{"page_size", absl::StrCat("page_size=", request.page_size(),
                                    "; must be 0 or more")}});
  }
  const int limit = request.page_size() == 0
                        ? kDefaultPageSize
                        : std::min(request.page_size(), kMaxPageSize);
  MutexLock lock(&mu_);
  ASSIGN_OR_RETURN(JobPage page, options_.store->ListJobs(limit, begin));
  v1::ListJobsResponse response;
  for (v1::Job& job : page.jobs) {
    const v1::Job* newer = FindNewerLocked(job.id());
    *response.add_jobs() = newer != nullptr ? *newer : std::move(job);
  }
  if (page.next != 0) response.set_next_page_token(absl::StrCat(page.next));
  return response;
}

absl::StatusOr<std::unique_ptr<Watch>> Dispatcher::OpenWatch(
    absl::string_view job_id, int64_t after_revision,
    std::function<void()> on_news) {
  MutexLock lock(&mu_);
  absl::StatusOr<std::unique_ptr<Watch>> watch =
      hub_.Open(job_id, after_revision, on_news);
  if (!absl::IsNotFound(watch.status())) return watch;
  // A job that ended long ago, or before a restart.
  ASSIGN_OR_RETURN(const v1::Job job, GetLocked(job_id));
  ASSIGN_OR_RETURN(
      std::vector<v1::WatchJobResponse> updates,
      options_.store->LatestUpdates(job_id, options_.watch.log_size));
  hub_.Restore(job, updates);
  return hub_.Open(job_id, after_revision, std::move(on_news));
}

}  // namespace weft::coordinator

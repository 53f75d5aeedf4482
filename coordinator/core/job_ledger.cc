#include "coordinator/core/job_ledger.h"

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/logging.h"
#include "base/status_macros.h"
#include "coordinator/core/job_state.h"
#include "coordinator/store/store.h"
#include "google/protobuf/timestamp.pb.h"
#include "weft/v1/job_service.pb.h"

namespace weft::coordinator {
namespace {

// Updates of one job that wait for the store; the oldest go first.
constexpr size_t kMaxUnsavedUpdates = kUpdatesKept;

google::protobuf::Timestamp ToProto(absl::Time time) {
  const int64_t ns = absl::ToUnixNanos(time);
  google::protobuf::Timestamp timestamp;
  timestamp.set_seconds(ns / 1000000000);
  timestamp.set_nanos(ns % 1000000000);
  return timestamp;
}

}  // namespace

absl::Status JobLedger::Create(v1::Job* job, absl::string_view request_id,
                               absl::string_view message) {
  job->set_state(v1::JOB_STATE_QUEUED);
  job->set_message(std::string(message));
  *job->mutable_create_time() = ToProto(options_.clock->Now());
  job->set_revision(1);
  RETURN_IF_ERROR(options_.store->CreateJob(*job, request_id));
  v1::WatchJobResponse update = EventOf(*job);
  update.set_revision(1);
  Publish(*job, update);
  LOG(INFO) << "job=" << job->id()
            << " queued world=" << job->spec().parallel().world();
  if (options_.observer != nullptr) options_.observer->OnJobState(*job);
  return absl::OkStatus();
}

// `message` may be that of the job: it is not looked at once the job has it.
void JobLedger::Move(v1::Job* job, v1::JobState state,
                     absl::string_view message) {
  if (absl::Status status = CheckMove(job->state(), state); !status.ok()) {
    LOG(DFATAL) << "job=" << job->id() << " " << status;
    return;
  }
  job->set_state(state);
  job->set_message(std::string(message));
  const google::protobuf::Timestamp now = ToProto(options_.clock->Now());
  if (state == v1::JOB_STATE_RUNNING) *job->mutable_start_time() = now;
  if (IsFinal(state)) *job->mutable_end_time() = now;
  LOG(INFO) << "job=" << job->id() << " state=" << ShortName(state)
            << " step=" << job->step()
            << " message=" << LogValue(job->message());
  if (options_.observer != nullptr) options_.observer->OnJobState(*job);
  Note(job, EventOf(*job));
}

void JobLedger::Say(v1::Job* job, absl::string_view message) {
  if (job->message() == message) return;
  job->set_message(std::string(message));
  Note(job, EventOf(*job));
}

void JobLedger::AddStep(v1::Job* job, const v1::StepMetrics& step) {
  job->set_step(step.step());
  if (!job->has_first_step()) *job->mutable_first_step() = step;
  *job->mutable_last_step() = step;
  VLOG(1) << "job=" << job->id() << " step=" << step.step()
          << " loss=" << step.loss() << " seconds=" << step.step_seconds();
  if (options_.observer != nullptr) options_.observer->OnStep(*job, step);
  v1::WatchJobResponse update;
  *update.mutable_step() = step;
  Note(job, std::move(update));
}

void JobLedger::AddEval(v1::Job* job, const v1::EvalMetrics& eval) {
  *job->mutable_last_eval() = eval;
  if (options_.observer != nullptr) options_.observer->OnEval(*job, eval);
  v1::WatchJobResponse update;
  *update.mutable_eval() = eval;
  Note(job, std::move(update));
}

void JobLedger::Note(v1::Job* job, v1::WatchJobResponse update) {
  job->set_revision(job->revision() + 1);
  update.set_revision(job->revision());
  Publish(*job, update);
  auto it = unsaved_.find(job->id());
  if (it == unsaved_.end()) {
    const absl::Status status = options_.store->UpdateJob(*job, {update});
    if (status.ok()) return;
    LOG(ERROR) << "job=" << job->id()
               << " is not written to the store, which is tried again: "
               << status;
    it = unsaved_.emplace(job->id(), Unsaved()).first;
  }
  Unsaved& unsaved = it->second;
  unsaved.job = *job;
  unsaved.updates.push_back(std::move(update));
  if (unsaved.updates.size() > kMaxUnsavedUpdates) {
    unsaved.updates.erase(unsaved.updates.begin());
  }
}

const v1::Job* JobLedger::FindUnsaved(absl::string_view job_id) const {
  auto it = unsaved_.find(job_id);
  return it == unsaved_.end() ? nullptr : &it->second.job;
}

void JobLedger::RetryUnsaved() {
  for (auto it = unsaved_.begin(); it != unsaved_.end();) {
    const Unsaved& unsaved = it->second;
    if (!options_.store->UpdateJob(unsaved.job, unsaved.updates).ok()) return;
    LOG(INFO) << "job=" << it->first << " is written to the store again";
    it = unsaved_.erase(it);
  }
}

void JobLedger::Publish(const v1::Job& job,
                        const v1::WatchJobResponse& update) {
  options_.outbox->Add(options_.hub->Append(job, update));
}

v1::WatchJobResponse JobLedger::EventOf(const v1::Job& job) const {
  v1::WatchJobResponse update;
  *update.mutable_event()->mutable_time() = ToProto(options_.clock->Now());
  update.mutable_event()->set_state(job.state());
  update.mutable_event()->set_message(job.message());
  return update;
}

}  // namespace weft::coordinator

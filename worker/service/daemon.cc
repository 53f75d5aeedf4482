#include "worker/service/daemon.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"
#include "worker/service/process_figures.h"

namespace weft::service {

using ::weft::worker::v1::AttachResponse;

Daemon::Daemon(Options options) : options_(options) {
  MutexLock lock(&mu_);
  UpdateReadinessLocked();
}

void Daemon::RunJobs() {
  while (true) {
    JobSession* session = nullptr;
    {
      MutexLock lock(&mu_);
      current_.reset();
      changed_.SignalAll();
      while (next_ == nullptr && shutdown_.ok()) changed_.Wait(&mu_);
      if (next_ == nullptr) return;
      current_ = std::move(next_);
      session = current_.get();
    }
    session->Run();
  }
}

void Daemon::Shutdown(absl::Status why) {
  MutexLock lock(&mu_);
  if (!shutdown_.ok()) return;
  shutdown_ = std::move(why);
  UpdateReadinessLocked();
  StopAllLocked(shutdown_);
  changed_.SignalAll();
}

std::string Daemon::Status() const {
  MutexLock lock(&mu_);
  std::string text = absl::StrCat(
      "worker ", worker_id_.empty() ? "(not named yet)" : worker_id_, "\n");
  absl::StrAppend(&text, "state  ", StateLocked(), "\n");
  if (current_ != nullptr) absl::StrAppend(&text, current_->Status());
  return text;
}

std::string Daemon::StatusJson() const {
  google::protobuf::Struct status;
  auto& fields = *status.mutable_fields();
  MutexLock lock(&mu_);
  fields["worker_id"].set_string_value(worker_id_);
  fields["state"].set_string_value(StateLocked());
  if (current_ != nullptr) {
    *fields["job"].mutable_struct_value() = current_->StatusFields();
  }
  std::string json;
  const auto printed =
      google::protobuf::util::MessageToJsonString(status, &json);
  return printed.ok() ? json : "{}";
}

absl::Status Daemon::Readiness() const {
  MutexLock lock(&readiness_mu_);
  return readiness_;
}

void Daemon::UpdateReadinessLocked() {
  absl::Status now = shutdown_;
  if (now.ok() && !is_attached_) {
    now = absl::UnavailableError("not attached to a coordinator");
  }
  MutexLock lock(&readiness_mu_);
  readiness_ = std::move(now);
}

const char* Daemon::StateLocked() const {
  if (!shutdown_.ok()) return "stopping";
  if (!is_attached_) return worker_id_.empty() ? "starting" : "detached";
  return current_ == nullptr ? "idle" : "busy";
}

void Daemon::OnAttached(const std::string& worker_id) {
  MutexLock lock(&mu_);
  worker_id_ = worker_id;
  is_attached_ = true;
  UpdateReadinessLocked();
}

void Daemon::OnDetached(const absl::Status& why) {
  MutexLock lock(&mu_);
  is_attached_ = false;
  UpdateReadinessLocked();
  StopAllLocked(why);
  while (current_ != nullptr || next_ != nullptr) changed_.Wait(&mu_);
}

void Daemon::OnMessage(const AttachResponse& message) {
  if (message.has_prepare()) {
    OnPrepare(message.prepare());
    return;
  }
  MutexLock lock(&mu_);
  switch (message.message_case()) {
    case AttachResponse::kRendezvousComplete: {
      const worker::v1::RendezvousComplete& m = message.rendezvous_complete();
      JobSession* s = FindLocked("RendezvousComplete", m.job_id(), m.epoch());
      if (s != nullptr) s->OnRendezvousComplete(m);
      break;
    }
    case AttachResponse::kStart: {
      const worker::v1::Start& m = message.start();
      JobSession* s = FindLocked("Start", m.job_id(), m.epoch());
      if (s != nullptr) s->OnStart(m);
      break;
    }
    case AttachResponse::kStop: {
      const worker::v1::Stop& m = message.stop();
      JobSession* s = FindLocked("Stop", m.job_id(), m.epoch());
      if (s != nullptr) s->OnStop(m);
      break;
    }
    default:
      LOG(WARNING) << "ignored message case=" << message.message_case();
  }
}

void Daemon::OnPrepare(const worker::v1::Prepare& prepare) {
  absl::Status free;
  {
    MutexLock lock(&mu_);
    free = CheckFreeLocked();
    if (free.ok()) {
      JobSession::Options options;
      options.prepare = prepare;
      options.ranks = options_.ranks;
      options.outbox = options_.outbox;
      options.clock = options_.clock;
      options.metrics = options_.metrics;
      options.device_bytes = options_.device_bytes;
      next_ = std::make_unique<JobSession>(std::move(options));
      changed_.SignalAll();
    }
  }
  if (!free.ok()) Refuse(prepare, free);
}

absl::Status Daemon::CheckFreeLocked() const {
  if (!shutdown_.ok()) return shutdown_;
  for (const JobSession* session : {current_.get(), next_.get()}) {
    if (session == nullptr || session->state() == SessionState::kFinished) {
      continue;
    }
    return absl::FailedPreconditionError(
        absl::StrCat("the worker is busy with job ", session->job_id(),
                     " epoch ", session->epoch()));
  }
  return absl::OkStatus();
}

void Daemon::Refuse(const worker::v1::Prepare& prepare,
                    const absl::Status& why) {
  LOG(WARNING) << "job=" << prepare.job_id()
               << " refused reason=" << LogValue(why.message());
  worker::v1::AttachRequest message;
  worker::v1::Finished& finished = *message.mutable_finished();
  finished.set_job_id(prepare.job_id());
  finished.set_epoch(prepare.epoch());
  finished.set_code(static_cast<int32_t>(why.code()));
  finished.set_message(
      absl::StrCat("rank ", prepare.binding().rank(), ": ", why.message()));
  *finished.mutable_figures() =
      ReadProcessFigures(options_.device_bytes->load());
  options_.outbox->Send(std::move(message));
}

JobSession* Daemon::FindLocked(const char* message, const std::string& job_id,
                               int64_t epoch) {
  for (JobSession* session : {current_.get(), next_.get()}) {
    if (session != nullptr && session->job_id() == job_id &&
        session->epoch() == epoch) {
      return session;
    }
  }
  LOG(WARNING) << "job=" << job_id << " epoch=" << epoch << " is not here: "
               << "ignored " << message;
  return nullptr;
}

void Daemon::StopAllLocked(const absl::Status& why) {
  if (current_ != nullptr) current_->Stop(why);
  if (next_ != nullptr) next_->Stop(why);
}

}  // namespace weft::service

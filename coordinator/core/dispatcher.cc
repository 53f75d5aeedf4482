#include "coordinator/core/dispatcher.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/logging.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "weft/v1/cluster_service.pb.h"
#include "weft/v1/job_service.pb.h"
#include "weft/worker/v1/worker_control_service.pb.h"

namespace weft::coordinator {

using worker::v1::AttachRequest;
using worker::v1::AttachResponse;
namespace {

// The job and epoch a worker's message is about; epoch 0 for messages about
// none.
struct JobEpoch {
  absl::string_view job_id;
  int64_t epoch = 0;
};

JobEpoch JobEpochOf(const AttachRequest& message) {
  switch (message.message_case()) {
    case AttachRequest::kRendezvous:
      return {message.rendezvous().job_id(), message.rendezvous().epoch()};
    case AttachRequest::kPrepared:
      return {message.prepared().job_id(), message.prepared().epoch()};
    case AttachRequest::kStepReport:
      return {message.step_report().job_id(), message.step_report().epoch()};
    case AttachRequest::kEvalReport:
      return {message.eval_report().job_id(), message.eval_report().epoch()};
    case AttachRequest::kFinished:
      return {message.finished().job_id(), message.finished().epoch()};
    default:
      return {};
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Dispatcher>> Dispatcher::Create(
    Options options) {
  std::unique_ptr<Dispatcher> dispatcher(new Dispatcher(std::move(options)));
  MutexLock lock(&dispatcher->mu_);
  RETURN_IF_ERROR(dispatcher->RestoreLocked());
  return dispatcher;
}

Dispatcher::Dispatcher(Options options)
    : options_(std::move(options)),
      hub_(options_.watch),
      last_answer_ns_(options_.clock->MonotonicNanos()),
      members_(
          {options_.clock, options_.heartbeat_timeout, options_.gone_kept}),
      ledger_(
          {options_.clock, options_.store, &hub_, &outbox_, options_.observer}),
      last_tick_ns_(options_.clock->MonotonicNanos()) {}

Dispatcher::~Dispatcher() = default;

absl::StatusOr<SessionId> Dispatcher::Attach(const worker::v1::Register& info,
                                             std::shared_ptr<WorkerLink> link) {
  SessionId session;
  {
    MutexLock lock(&mu_);
    if (is_shut_down_) {
      return absl::UnavailableError("the coordinator is shutting down");
    }
    // The same process again: it gave up its old stream before we noticed.
    Member* before = members_.FindAttached(info.worker_id());
    if (before != nullptr && before->info.incarnation() == info.incarnation()) {
      LoseLocked(*before, "its process opened a new stream",
                 absl::AbortedError("the worker opened a new stream"));
    }
    ASSIGN_OR_RETURN(Member * member, members_.Attach(info, std::move(link)));
    session = member->session;
    LOG(INFO) << "worker=" << member->id() << " attached"
              << " host=" << LogValue(info.host()) << " pid=" << info.pid()
              << " device=" << LogValue(info.device())
              << " incarnation=" << info.incarnation();
    AttachResponse message;
    auto& registered = *message.mutable_registered();
    registered.set_worker_id(member->id());
    registered.set_protocol_version(member->protocol_version);
    registered.set_heartbeat_interval_ms(
        absl::ToInt64Milliseconds(options_.heartbeat_interval));
    registered.set_heartbeat_timeout_ms(
        absl::ToInt64Milliseconds(options_.heartbeat_timeout));
    SendLocked(*member, std::move(message));
    if (options_.observer != nullptr) {
      options_.observer->OnWorker(member->ToProto());
    }
    SettleLocked();
  }
  outbox_.Run();
  return session;
}

void Dispatcher::OnMessage(SessionId session, const AttachRequest& message) {
  {
    MutexLock lock(&mu_);
    Member* member = members_.FindAttached(session);
    if (member == nullptr) return;
    members_.Hear(*member);
    if (message.has_heartbeat()) {
      member->figures = message.heartbeat().figures();
      return;
    }
    const JobEpoch about = JobEpochOf(message);
    if (about.epoch == 0) {
      LoseLocked(*member, "it broke the protocol: a second Register, or none",
                 absl::InvalidArgumentError("not a message for this time"));
    } else if (about.epoch != member->epoch || about.job_id != member->job_id) {
      VLOG(1) << "worker=" << member->id()
              << " stale message of job=" << about.job_id
              << " epoch=" << about.epoch;
      return;
    } else {
      if (message.has_finished()) {
        member->figures = message.finished().figures();
      }
      FindLocked(about.job_id)->run->OnMessage(member->rank, message);
    }
    SettleLocked();
  }
  outbox_.Run();
}

bool Dispatcher::OnDetached(SessionId session, absl::string_view why) {
  {
    MutexLock lock(&mu_);
    Member* member = members_.FindAttached(session);
    if (member == nullptr) return false;
    LoseLocked(*member, why, absl::OkStatus());
    SettleLocked();
  }
  outbox_.Run();
  return true;
}

void Dispatcher::OnLeft(SessionId session) {
  MutexLock lock(&mu_);
  const Member* member = members_.FindLost(session);
  if (member == nullptr || options_.observer == nullptr) return;
  options_.observer->OnWorkerForgotten(member->id());
}

std::vector<v1::Worker> Dispatcher::ListWorkers() {
  MutexLock lock(&mu_);
  return members_.List();
}

v1::GetClusterInfoResponse Dispatcher::ClusterInfo() {
  MutexLock lock(&mu_);
  v1::GetClusterInfoResponse info;
  info.set_workers(members_.attached());
  info.set_idle_workers(members_.Idle().size());
  info.set_queued_jobs(queue_.size());
  int running = 0;
  for (const auto& [id, active] : jobs_) {
    const bool runs = active->run != nullptr && !active->run->has_ended();
    running += runs ? 1 : 0;
  }
  info.set_running_jobs(running);
  return info;
}

void Dispatcher::Tick() {
  {
    MutexLock lock(&mu_);
    ForgiveStallLocked();
    for (Member* member : members_.Overdue()) {
      const std::string why =
          absl::StrCat("no sign of life for ",
                       absl::FormatDuration(options_.heartbeat_timeout));
      LoseLocked(*member, why, absl::DeadlineExceededError(why));
    }
    for (auto& [id, active] : jobs_) {
      if (active->run != nullptr) active->run->Tick();
    }
    ForgetLocked();
    ledger_.RetryUnsaved();
    SettleLocked();
  }
  outbox_.Run();
  last_answer_ns_ = options_.clock->MonotonicNanos();
}

absl::Duration Dispatcher::SinceLastAnswer() const {
  return absl::Nanoseconds(options_.clock->MonotonicNanos() -
                           last_answer_ns_.load());
}

bool Dispatcher::IsAnswering() const {
  return SinceLastAnswer() <=
         std::max(options_.heartbeat_timeout, 10 * options_.tick_interval);
}

bool Dispatcher::IsStuck() const {
  return SinceLastAnswer() > options_.stuck_after;
}

// What workers said during a stall waits in their sockets and is read after it.
void Dispatcher::ForgiveStallLocked() {
  const int64_t now = options_.clock->MonotonicNanos();
  const auto gap = absl::Nanoseconds(now - std::exchange(last_tick_ns_, now));
  const absl::Duration late =
      std::max(options_.heartbeat_timeout / 4, 2 * options_.tick_interval);
  if (gap <= late) return;
  LOG(WARNING) << "the coordinator stood still for " << gap
               << "; deadlines move by as much";
  members_.Forgive(gap);
  for (auto& [id, active] : jobs_) {
    if (active->run != nullptr) active->run->Forgive(gap);
  }
}

void Dispatcher::Shutdown() {
  {
    MutexLock lock(&mu_);
    is_shut_down_ = true;
    for (auto& [id, active] : jobs_) {
      if (active->run == nullptr) continue;
      active->run->Abandon(
          absl::StrCat("the coordinator was stopped after step ",
                       active->job.step(), "; submit the job again"));
    }
    for (const v1::Worker& worker : members_.List()) {
      Member* member = members_.FindAttached(worker.id());
      if (member == nullptr) continue;
      LoseLocked(*member, "the coordinator was stopped",
                 absl::UnavailableError("the coordinator was stopped"));
    }
    ledger_.RetryUnsaved();
    SettleLocked();
  }
  outbox_.Run();
}

void Dispatcher::LoseLocked(Member& member, absl::string_view why,
                            absl::Status reason) {
  LOG(INFO) << "worker=" << member.id() << " lost why=" << LogValue(why);
  ActiveJob* active = FindLocked(member.job_id);
  const int rank = member.rank;
  DetachLocked(member, std::move(reason));
  if (active != nullptr) active->run->OnLost(rank, why);
}

void Dispatcher::DetachLocked(Member& member, absl::Status reason) {
  outbox_.Add([link = member.link, reason] { link->Close(reason); });
  members_.Detach(member);
  if (options_.observer != nullptr) {
    options_.observer->OnWorker(member.ToProto());
  }
}

void Dispatcher::SendLocked(const Member& member, AttachResponse message) {
  outbox_.Add([link = member.link, message = std::move(message)]() mutable {
    link->Send(std::move(message));
  });
}

Member* Dispatcher::MemberOfLocked(const ActiveJob& active, int rank) {
  Member* member = members_.FindAttached(active.job.workers(rank));
  return member != nullptr && member->epoch == active.epoch ? member : nullptr;
}

void Dispatcher::ForgetLocked() {
  const std::vector<std::string> lost = members_.ForgetLost();
  const int64_t limit = options_.clock->MonotonicNanos() -
                        absl::ToInt64Nanoseconds(options_.gone_kept);
  while (!ended_.empty() && ended_.front().first < limit) {
    if (options_.observer != nullptr) {
      options_.observer->OnJobForgotten(ended_.front().second);
    }
    ended_.pop_front();
  }
  if (options_.observer == nullptr) return;
  for (const std::string& id : lost) options_.observer->OnWorkerForgotten(id);
}

}  // namespace weft::coordinator

// The part of the dispatcher that places jobs on workers.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "coordinator/core/dispatcher.h"
#include "coordinator/core/job_run.h"
#include "coordinator/core/job_state.h"
#include "coordinator/core/membership.h"
#include "coordinator/core/prepare.h"
#include "schedule/memory_plan.h"
#include "schedule/rules/validate.h"
#include "weft/v1/job_service.pb.h"
#include "weft/worker/v1/worker_control_service.pb.h"

namespace weft::coordinator {

// Carries out what a run asks for. Called with the dispatcher's lock held.
class Dispatcher::RunHost : public JobRun::Host {
 public:
  RunHost(Dispatcher* dispatcher, ActiveJob* active)
      : d_(*dispatcher), active_(*active) {}

  void Send(int rank, worker::v1::AttachResponse message) override {
    d_.mu_.AssertHeld();
    Member* member = d_.MemberOfLocked(active_, rank);
    if (member != nullptr) d_.SendLocked(*member, std::move(message));
  }
  void OnState(v1::JobState state, const std::string& message) override {
    d_.mu_.AssertHeld();
    d_.ledger_.Move(&active_.job, state, message);
  }
  void OnStep(const v1::StepMetrics& step) override {
    d_.mu_.AssertHeld();
    d_.ledger_.AddStep(&active_.job, step);
  }
  void OnEval(const v1::EvalMetrics& eval) override {
    d_.mu_.AssertHeld();
    d_.ledger_.AddEval(&active_.job, eval);
  }
  void OnRankDone(int rank) override {
    d_.mu_.AssertHeld();
    Member* member = d_.MemberOfLocked(active_, rank);
    if (member != nullptr) d_.members_.Release(*member);
  }
  void OnRankStuck(int rank) override {
    d_.mu_.AssertHeld();
    Member* member = d_.MemberOfLocked(active_, rank);
    if (member == nullptr) return;
    d_.DetachLocked(*member, absl::DeadlineExceededError(
                                 "the worker did not stop a job in time"));
  }

 private:
  Dispatcher& d_;
  ActiveJob& active_;
};

Dispatcher::ActiveJob::ActiveJob() = default;
Dispatcher::ActiveJob::~ActiveJob() = default;

void Dispatcher::SettleLocked() {
  for (auto it = jobs_.begin(); it != jobs_.end();) {
    ActiveJob& active = *it->second;
    const bool is_over = IsFinal(active.job.state()) &&
                         (active.run == nullptr || active.run->is_drained());
    if (!is_over) {
      ++it;
      continue;
    }
    queue_.erase(std::remove(queue_.begin(), queue_.end(), it->first),
                 queue_.end());
    ended_.emplace_back(options_.clock->MonotonicNanos(), it->first);
    it = jobs_.erase(it);
  }
  while (!queue_.empty() && !is_shut_down_) {
    ActiveJob& head = *FindLocked(queue_.front());
    if (head.plan == nullptr) break;
    const size_t world = head.job.spec().parallel().world();
    std::vector<Member*> idle = FittingLocked(head);
    idle.erase(std::remove_if(idle.begin(), idle.end(),
                              [](const Member* m) { return !m->is_idle(); }),
               idle.end());
    if (idle.size() < world) break;
    const absl::StatusOr<int64_t> epoch = options_.store->NextEpoch();
    if (!epoch.ok() && epoch.status() != placement_error_) {
      LOG(ERROR) << "job=" << head.job.id()
                 << " is not placed yet: " << epoch.status();
    }
    placement_error_ = epoch.status();
    if (!epoch.ok()) break;
    idle.resize(world);
    queue_.pop_front();
    StartLocked(head, idle, *epoch);
  }
  ExplainQueueLocked();
}

std::vector<Member*> Dispatcher::FittingLocked(const ActiveJob& active) {
  return FittingLocked(*active.plan);
}

std::vector<Member*> Dispatcher::FittingLocked(const CompiledPlan& plan) {
  const int64_t needed = schedule::TotalBytes(plan.summary.memory());
  std::vector<Member*> members = members_.Attached();
  members.erase(std::remove_if(members.begin(), members.end(),
                               [&](const Member* member) {
                                 const int64_t has =
                                     member->info.device_memory_bytes();
                                 return has != 0 && has < needed;
                               }),
                members.end());
  return members;
}

absl::Status Dispatcher::CheckFitLocked(const CompiledPlan& plan) {
  if (members_.attached() == 0 || !FittingLocked(plan).empty()) {
    return absl::OkStatus();
  }
  int64_t most = 0;
  for (const Member* member : members_.Attached()) {
    most = std::max(most, member->info.device_memory_bytes());
  }
  const v1::MemoryPlan& memory = plan.summary.memory();
  return schedule::ToStatus(
      {{"model",
        absl::StrCat("a rank needs ", schedule::TotalBytes(memory),
                     " bytes of device memory: parameters ",
                     memory.parameters(), ", main weights ",
                     memory.main_weights(), ", gradients ", memory.gradients(),
                     ", optimizer ", memory.optimizer(), ", static values ",
                     memory.static_values(), ", routed values at their bound ",
                     memory.routed_values(),
                     "; no attached worker has more than ", most)}});
}

void Dispatcher::StartLocked(ActiveJob& active,
                             const std::vector<Member*>& members,
                             int64_t epoch) {
  v1::Job& job = active.job;
  active.epoch = epoch;
  JobRun::Options run;
  run.job_id = job.id();
  run.epoch = epoch;
  run.steps = job.spec().steps();
  run.assignment_hash = active.plan->units.hash();
  run.timeouts = options_.timeouts;
  run.clock = options_.clock;
  for (size_t rank = 0; rank < members.size(); ++rank) {
    members_.Assign(*members[rank], job.id(), epoch, rank);
    job.add_workers(members[rank]->id());
    run.workers.push_back(members[rank]->id());
  }
  for (v1::GroupDeadline& group : GroupDeadlines(job.spec())) {
    *job.add_group_deadlines() = std::move(group);
  }
  LOG(INFO) << "job=" << job.id() << " epoch=" << epoch << " starts";
  ledger_.Move(
      &job, v1::JOB_STATE_STARTING,
      absl::StrCat(members.size(), members.size() == 1 ? " worker prepares"
                                                       : " workers prepare"));
  active.host = std::make_unique<RunHost>(this, &active);
  run.host = active.host.get();
  active.run = std::make_unique<JobRun>(std::move(run));
  for (size_t rank = 0; rank < members.size(); ++rank) {
    SendLocked(*members[rank], MakePrepare(job, *active.plan, epoch, rank));
  }
  active.plan.reset();  // a large one takes hundreds of MiB
}

void Dispatcher::ExplainQueueLocked() {
  if (options_.observer != nullptr) options_.observer->OnQueue(queue_.size());
  for (const std::string& id : queue_) {
    ActiveJob& active = *FindLocked(id);
    ledger_.Say(&active.job, id == queue_.front()
                                 ? ExplainHeadLocked(active)
                                 : "waits for the jobs queued before it");
  }
}

std::string Dispatcher::ExplainHeadLocked(const ActiveJob& head) {
  if (head.plan == nullptr) return "waits until its plan is compiled";
  const int attached = members_.attached();
  const int small = attached - static_cast<int>(FittingLocked(head).size());
  std::string text =
      absl::StrCat("waits for ", head.job.spec().parallel().world(),
                   " idle workers: ", attached, " attached, ",
                   members_.Idle().size(), " idle");
  if (small > 0) {
    absl::StrAppend(&text, "; ", small, " attached without the ",
                    schedule::TotalBytes(head.plan->summary.memory()),
                    " bytes of device memory it needs");
  }
  return text;
}

std::string Dispatcher::SubmitWarningLocked(const ActiveJob& active) {
  const int world = active.job.spec().parallel().world();
  const int fitting = FittingLocked(active).size();
  if (world <= fitting) return "";
  return absl::StrCat(
      "parallel.world=", world, " but ", fitting,
      fitting == 1 ? " worker is" : " workers are", " attached",
      fitting < members_.attached()
          ? absl::StrCat(" that ", fitting == 1 ? "has" : "have",
                         " the device memory it needs")
          : "",
      "; the job waits");
}

}  // namespace weft::coordinator

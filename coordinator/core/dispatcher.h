// Runs jobs on workers: takes them in, places them, follows them, ends them.
//
//   clients ── Submit, Cancel, Get, List, Watch ──►┐
//   workers ── Attach, OnMessage, OnDetached ─────►│ Dispatcher ──► Store
//   time    ── Tick ──────────────────────────────►┘     │
//                                      WorkerLink ◄──────┘
//
// Placement is first in, first out, all ranks at once: the oldest queued job
// waits until as many workers are idle as its world has ranks, and the jobs
// behind it wait too. Ranks follow the order of worker ids.
#ifndef WEFT_COORDINATOR_CORE_DISPATCHER_H_
#define WEFT_COORDINATOR_CORE_DISPATCHER_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "coordinator/core/job_ledger.h"
#include "coordinator/core/job_observer.h"
#include "coordinator/core/job_run.h"
#include "coordinator/core/membership.h"
#include "coordinator/core/outbox.h"
#include "coordinator/core/plan_compiler.h"
#include "coordinator/core/watch_hub.h"
#include "coordinator/core/worker_link.h"
#include "coordinator/store/store.h"
#include "weft/v1/cluster_service.pb.h"
#include "weft/v1/job_service.pb.h"
#include "weft/worker/v1/worker_control_service.pb.h"

namespace weft::coordinator {

// Thread-safe. Links and watchers are called with no lock held, in the order of
// the changes that caused the calls.
class Dispatcher {
 public:
  struct Options {
    // Borrowed.
    Clock* clock = nullptr;
    Store* store = nullptr;
    const PlanCompiler* compiler = nullptr;
    JobObserver* observer = nullptr;  // may be null

    absl::Duration heartbeat_interval = absl::Milliseconds(500);
    absl::Duration heartbeat_timeout = absl::Seconds(4);
    // How often Tick() is called.
    absl::Duration tick_interval = absl::Milliseconds(100);
    // How long workers that are gone, and the series of jobs that have ended,
    // stay visible.
    absl::Duration gone_kept = absl::Minutes(10);
    // A Tick() that takes longer will not come back: its process had better be
    // started anew, though that costs every running job.
    absl::Duration stuck_after = absl::Minutes(15);
    JobRun::Timeouts timeouts;
    WatchHub::Options watch;
    // Folder of the folders that jobs write to.
    std::string artifacts_dir;
    // Random bits for job ids.
    std::function<uint32_t()> random;
  };

  // Takes up what the store holds: queued jobs are queued again, CompileNext()
  // compiles them; jobs that ran have FAILED, or are CANCELLED if they were
  // being cancelled. Errors are the store's.
  static absl::StatusOr<std::unique_ptr<Dispatcher>> Create(Options options);
  ~Dispatcher();

  // Jobs. Errors as the methods of JobService say; UNAVAILABLE also when the
  // store is, or during shutdown.
  absl::StatusOr<v1::Job> Submit(const v1::SubmitJobRequest& request);
  absl::StatusOr<v1::ValidateJobResponse> ValidateOnly(
      const v1::ValidateJobRequest& request);
  absl::StatusOr<v1::Job> Cancel(const v1::CancelJobRequest& request);
  absl::StatusOr<v1::Job> Get(absl::string_view job_id);
  absl::StatusOr<v1::ListJobsResponse> List(const v1::ListJobsRequest& request);
  absl::StatusOr<std::unique_ptr<Watch>> OpenWatch(
      absl::string_view job_id, int64_t after_revision,
      std::function<void()> on_news);

  // Workers. Attach() sends Registered over `link`. Errors as
  // WorkerControlService.Attach says; INVALID_ARGUMENT for an id that is not
  // legal.
  absl::StatusOr<SessionId> Attach(const worker::v1::Register& info,
                                   std::shared_ptr<WorkerLink> link);
  void OnMessage(SessionId session, const worker::v1::AttachRequest& message);
  // Returns whether the worker was attached until now.
  bool OnDetached(SessionId session, absl::string_view why);
  // A worker that is detached had ended its stream itself, as one does that is
  // stopped. It counts as lost, but observers do not wait for it.
  void OnLeft(SessionId session);
  std::vector<v1::Worker> ListWorkers();
  // All but the fields about the coordinator itself.
  v1::GetClusterInfoResponse ClusterInfo();

  // Notices what did not happen in time. Call it every tick_interval: when it
  // comes much later, this process stood still, and the time since the call
  // before counts against nobody.
  void Tick();
  // Compiles the job at the head of the queue when a restart took its plan.
  // Takes long; call it often, from a thread of its own.
  void CompileNext();
  // False when Tick() has not returned for so long that workers would be lost:
  // the store, or whoever holds the lock, hangs. Does not wait.
  bool IsAnswering() const;
  // True when Tick() has not returned for Options::stuck_after. Does not wait.
  bool IsStuck() const;

  // Ends running jobs, stops their workers and closes all links; nothing starts
  // any more. Queued jobs stay queued in the store.
  void Shutdown();

 private:
  class RunHost;

  // A job that has not ended, or whose workers still clean up.
  struct ActiveJob {
    ActiveJob();
    ~ActiveJob();

    v1::Job job;
    // See AdmittedJob. Null until it is compiled, and once a run has begun.
    std::shared_ptr<const CompiledPlan> plan;
    int64_t epoch = 0;
    std::unique_ptr<RunHost> host;  // while there is a run
    std::unique_ptr<JobRun> run;
  };

  explicit Dispatcher(Options options);

  absl::Duration SinceLastAnswer() const;

  absl::Status RestoreLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status RestoreJobLocked(v1::Job job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<v1::Job> FindSubmittedLocked(
      const v1::SubmitJobRequest& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<std::string> NewJobIdLocked(const v1::TrainingJob& spec)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<v1::Job> GetLocked(absl::string_view job_id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The job as it is when the store may not know; null otherwise.
  const v1::Job* FindNewerLocked(absl::string_view job_id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Null when the job is not active.
  ActiveJob* FindLocked(absl::string_view job_id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  void LoseLocked(Member& member, absl::string_view why, absl::Status reason)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void DetachLocked(Member& member, absl::Status reason)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SendLocked(const Member& member, worker::v1::AttachResponse message)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Member* MemberOfLocked(const ActiveJob& active, int rank)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  void ForgiveStallLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // After any change: drops what is over, places what can be placed.
  void SettleLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Attached workers that have the memory for a job whose plan is known.
  std::vector<Member*> FittingLocked(const ActiveJob& active)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::vector<Member*> FittingLocked(const CompiledPlan& plan)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // INVALID_ARGUMENT, with the bytes a rank needs by category, when workers are
  // attached but none has the memory.
  absl::Status CheckFitLocked(const CompiledPlan& plan)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Why a job waits that is at the head of the queue.
  std::string ExplainHeadLocked(const ActiveJob& head)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // What a client should know that submits a job; empty when there is nothing.
  std::string SubmitWarningLocked(const ActiveJob& active)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void StartLocked(ActiveJob& active, const std::vector<Member*>& members,
                   int64_t epoch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ExplainQueueLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ForgetLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  Outbox outbox_;
  WatchHub hub_;

  std::atomic<int64_t> last_answer_ns_;  // when Tick() returned

  Mutex mu_;  // taken before those of the hub, the outbox and the store
  Membership members_ ABSL_GUARDED_BY(mu_);
  JobLedger ledger_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, std::unique_ptr<ActiveJob>> jobs_ ABSL_GUARDED_BY(mu_);
  std::deque<std::string> queue_ ABSL_GUARDED_BY(mu_);  // oldest first
  // Jobs that have ended, with the time, oldest first.
  std::deque<std::pair<int64_t, std::string>> ended_ ABSL_GUARDED_BY(mu_);
  absl::Status placement_error_ ABSL_GUARDED_BY(mu_);  // the last one logged
  int64_t last_tick_ns_ ABSL_GUARDED_BY(mu_);
  bool is_shut_down_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace weft::coordinator

#endif  // WEFT_COORDINATOR_CORE_DISPATCHER_H_

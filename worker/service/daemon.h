// Daemon: takes job after job.
#ifndef WEFT_WORKER_SERVICE_DAEMON_H_
#define WEFT_WORKER_SERVICE_DAEMON_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "weft/worker/v1/worker_control_service.pb.h"
#include "worker/service/attachment_handler.h"
#include "worker/service/job_session.h"
#include "worker/service/outbox.h"
#include "worker/service/rank.h"
#include "worker/telemetry/metrics.h"

namespace weft::service {

// Turns what the coordinator says into job sessions, one at a time.
//
// One thread, the runner, lives in RunJobs() and runs every session; it is the
// same for all jobs, so that a job leaves no thread behind. The thread that
// reads the stream calls the handler's methods.
//
// Locks are taken in the order daemon, session, rank, outbox; that of readiness
// comes last, and nothing is done under it.
class Daemon : public AttachmentHandler {
 public:
  struct Options {
    RankFactory* ranks = nullptr;
    Outbox* outbox = nullptr;
    Clock* clock = nullptr;
    telemetry::WorkerMetrics* metrics = nullptr;  // may be null
    // Kept at the device bytes of the job at hand.
    std::atomic<int64_t>* device_bytes = nullptr;
  };

  explicit Daemon(Options options);

  // Runs jobs until Shutdown(); the last one has ended when it returns.
  void RunJobs();

  // Stops the job and refuses others. Any thread.
  void Shutdown(absl::Status why);

  // Who the worker is and what it does, in lines of text. Any thread.
  std::string Status() const;
  // The same as one JSON object: worker_id, state (starting, idle, busy,
  // detached or stopping) and, of the job at hand, job with id, state, rank,
  // world, step and steps.
  std::string StatusJson() const;
  // OK while the coordinator can give this worker jobs: it is attached and not
  // shutting down. Any thread; waits for nothing, whatever the daemon is doing.
  absl::Status Readiness() const;

  void OnAttached(const std::string& worker_id) override;
  // Stops the job of a coordinator that is gone, and waits until it has ended:
  // the worker attaches anew with nothing left of it.
  void OnDetached(const absl::Status& why) override;
  void OnMessage(const worker::v1::AttachResponse& message) override;

 private:
  void OnPrepare(const worker::v1::Prepare& prepare);
  // OK when a job can be taken.
  absl::Status CheckFreeLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Refuse(const worker::v1::Prepare& prepare, const absl::Status& why);
  // Null, and a log line, when there is no such session.
  JobSession* FindLocked(const char* message, const std::string& job_id,
                         int64_t epoch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // One word.
  const char* StateLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void StopAllLocked(const absl::Status& why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void UpdateReadinessLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;

  mutable Mutex mu_;
  CondVar changed_;
  absl::Status shutdown_ ABSL_GUARDED_BY(mu_);
  std::string worker_id_ ABSL_GUARDED_BY(mu_);  // once attached
  bool is_attached_ ABSL_GUARDED_BY(mu_) = false;
  // The session the runner is in, and the one it takes next: the coordinator
  // may send a Prepare before the runner has left the session before.
  std::unique_ptr<JobSession> current_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<JobSession> next_ ABSL_GUARDED_BY(mu_);

  mutable Mutex readiness_mu_;
  absl::Status readiness_ ABSL_GUARDED_BY(readiness_mu_);
};

}  // namespace weft::service

#endif  // WEFT_WORKER_SERVICE_DAEMON_H_

// JobSession: one job on this worker, from Prepare to Finished.
#ifndef WEFT_WORKER_SERVICE_JOB_SESSION_H_
#define WEFT_WORKER_SERVICE_JOB_SESSION_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "google/protobuf/struct.pb.h"
#include "weft/worker/v1/worker_control_service.pb.h"
#include "worker/service/outbox.h"
#include "worker/service/rank.h"
#include "worker/service/session_state.h"
#include "worker/telemetry/job_telemetry.h"

namespace weft::service {

// Runs a job as session_state.h draws it.
//
// One thread, the runner, calls Run() and does all the work in it. The thread
// that reads the stream calls the On… methods and Stop(), which only leave
// notes for the runner and never wait for it, or for the device.
//
// Guarantees: exactly one Finished is sent, after everything the job held has
// been given back, and nothing after it. Messages of another epoch, or for
// another state, change nothing but the log.
class JobSession {
 public:
  struct Options {
    worker::v1::Prepare prepare;
    RankFactory* ranks = nullptr;
    Outbox* outbox = nullptr;
    Clock* clock = nullptr;
    // May be null.
    telemetry::WorkerMetrics* metrics = nullptr;
    // Kept at the device bytes of the job, for heartbeats.
    std::atomic<int64_t>* device_bytes = nullptr;
  };

  explicit JobSession(Options options);

  // Runs the job to its end. Called once.
  void Run();

  void OnRendezvousComplete(const worker::v1::RendezvousComplete& message);
  void OnStart(const worker::v1::Start& message);
  void OnStop(const worker::v1::Stop& message);

  // Stops the job at once, wherever it is. The first reason counts.
  void Stop(absl::Status why);

  SessionState state() const;
  // Job, rank, state and last step, in lines of text. Any thread.
  std::string Status() const;
  // The same as fields: id, state, rank, world, step, steps. Any thread.
  google::protobuf::Struct StatusFields() const;
  const std::string& job_id() const { return prepare().job_id(); }
  int64_t epoch() const { return prepare().epoch(); }

 private:
  const worker::v1::Prepare& prepare() const { return options_.prepare; }
  int rank() const { return prepare().binding().rank(); }
  int world() const { return prepare().binding().world(); }

  // The job's life, in order. Each part returns early on an error or a stop.
  absl::Status Drive();
  absl::Status Rendezvous();
  absl::StatusOr<std::vector<Addresses>> AwaitAddresses();
  absl::Status GetReady();
  absl::Status OpenTelemetry();
  absl::Status AwaitStart();
  absl::Status RunSteps();
  absl::Status RunStep(int64_t step, exec::StepResult* result);
  absl::Status Validate(int64_t step);
  absl::Status WriteOutputs(int64_t step, const exec::StepResult& result);
  absl::Status WriteTrace(int64_t step, const exec::StepResult& result);
  absl::Status WriteGradients();
  absl::Status WriteTaps();
  absl::Status WriteRouting();
  absl::Status WriteParameters();

  // Gives everything back and says so.
  void Finish(absl::Status outcome);

  // Waits while the coordinator is slow to take reports.
  void Send(worker::v1::AttachRequest message);
  void MoveTo(SessionState next);
  // Whether a message belongs to this session and state; says so if not.
  bool IsForLocked(const char* message, const std::string& job_id,
                   int64_t epoch, SessionState expected) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The reason to stop, else `status`.
  absl::Status OrStopped(absl::Status status) const;
  bool IsStopped() const;
  void UpdateDeviceBytes();
  std::string LogPrefix() const;

  const Options options_;

  mutable Mutex mu_;
  CondVar changed_;
  SessionState state_ ABSL_GUARDED_BY(mu_) = SessionState::kPreparing;
  absl::Status stop_ ABSL_GUARDED_BY(mu_);
  std::optional<worker::v1::RendezvousComplete> addresses_ ABSL_GUARDED_BY(mu_);
  bool is_started_ ABSL_GUARDED_BY(mu_) = false;
  // What Stop() cancels; null before Open and during teardown.
  Rank* cancellable_ ABSL_GUARDED_BY(mu_) = nullptr;

  // Of the runner.
  std::unique_ptr<Rank> parts_;
  std::unique_ptr<telemetry::JobTelemetry> telemetry_;
  int64_t first_step_begin_ns_ = 0;
  std::atomic<int64_t> last_step_{0};  // others may read it
};

}  // namespace weft::service

#endif  // WEFT_WORKER_SERVICE_JOB_SESSION_H_

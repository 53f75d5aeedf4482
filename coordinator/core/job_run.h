// One run of one job on its workers, from Prepare to the last Finished.
//
//   kConnecting  Prepare sent; waits for every rank's Rendezvous
//   kPreparing   RendezvousComplete sent; waits for every rank's Prepared
//   kRunning     Start sent; takes reports until every rank has Finished
//   kStopping    Stop sent: cancelled, or failed for a cause not clear yet
//   kEnded       the outcome is known; ranks may still clean up
//
// A failure with a clear cause ends the run at once: whoever watches the job
// learns it while the surviving ranks still clean up. When a rank only says
// that its peers did not answer, the run waits a moment for the peer to be
// missed, or for its own error.
#ifndef WEFT_COORDINATOR_CORE_JOB_RUN_H_
#define WEFT_COORDINATOR_CORE_JOB_RUN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "coordinator/core/root_cause.h"
#include "coordinator/core/step_aggregator.h"
#include "weft/v1/job_service.pb.h"
#include "weft/worker/v1/worker_control_service.pb.h"

namespace weft::coordinator {

// Not thread-safe. Calls its host from inside its own methods.
class JobRun {
 public:
  // What a run asks of its owner.
  class Host {
   public:
    virtual ~Host() = default;
    virtual void Send(int rank, worker::v1::AttachResponse message) = 0;
    // RUNNING, STOPPING, or a final state: the outcome.
    virtual void OnState(v1::JobState state, const std::string& message) = 0;
    virtual void OnStep(const v1::StepMetrics& step) = 0;
    virtual void OnEval(const v1::EvalMetrics& eval) = 0;
    // The rank's worker may take another job.
    virtual void OnRankDone(int rank) = 0;
    // The rank's worker did not stop in time: it counts as lost.
    virtual void OnRankStuck(int rank) = 0;
  };

  struct Timeouts {
    // From Prepare until all ranks are ready to start.
    absl::Duration prepare = absl::Seconds(120);
    // From Stop until a rank has Finished.
    absl::Duration stop = absl::Seconds(10);
    // How long a cause that is not clear may wait for a better one.
    absl::Duration settle = absl::Milliseconds(1500);
  };

  struct Options {
    std::string job_id;
    int64_t epoch = 0;
    int64_t steps = 0;
    std::vector<std::string> workers;  // ids, by rank
    uint64_t assignment_hash = 0;      // of the plan's units
    Timeouts timeouts;
    Clock* clock = nullptr;
    Host* host = nullptr;
  };

  // Begins with Prepare sent.
  explicit JobRun(Options options);

  // A message of this run's epoch.
  void OnMessage(int rank, const worker::v1::AttachRequest& message);
  // The rank's worker is gone.
  void OnLost(int rank, absl::string_view why);
  void Tick();
  // The last `stall` counts as no time: nothing could be noticed.
  void Forgive(absl::Duration stall);

  // Stops the ranks; the outcome will be CANCELLED. Nothing when it stops
  // already.
  void Cancel(absl::string_view reason);
  // Stops the ranks and ends the run now: CANCELLED or FAILED as was on its
  // way, else FAILED with `why`.
  void Abandon(absl::string_view why);

  // Whether a job stops since somebody cancelled it, and not for an error, also
  // when its run is gone.
  static bool IsCancelling(const v1::Job& job);

  bool has_ended() const { return phase_ == Phase::kEnded; }
  // True when no rank has anything to clean up any more.
  bool is_drained() const;

 private:
  enum class Phase { kConnecting, kPreparing, kRunning, kStopping, kEnded };

  struct Rank {
    bool is_gone = false;  // finished or lost
    bool has_rendezvous = false;
    bool has_prepared = false;
    int64_t steps = 0;  // reported
    worker::v1::Rendezvous rendezvous;
    worker::v1::Prepared prepared;
  };

  void OnRendezvous(int rank, const worker::v1::Rendezvous& message);
  void OnPrepared(int rank, const worker::v1::Prepared& message);
  void OnStepReport(int rank, const worker::v1::StepReport& message);
  void OnEvalReport(int rank, const worker::v1::EvalReport& message);
  void OnFinished(int rank, const worker::v1::Finished& message);

  // A message that the protocol does not allow now.
  void OnOutOfTurn(int rank, absl::string_view what);
  void CompleteRendezvous();
  void Start();
  // What the ranks disagree about; empty when they agree.
  std::string Disagreement() const;

  // Draws the conclusions of what is known now.
  void Conclude();
  void StopRanks(absl::string_view reason);
  void End(v1::JobState state, const std::string& message);

  std::string Name(int rank) const;
  void SendToAll(const worker::v1::AttachResponse& message);
  // Ranks for which `waits` holds, as "rank 1 (worker w-1), …".
  template <typename Predicate>
  std::string Names(Predicate waits) const;
  int64_t After(absl::Duration timeout) const;

  const Options options_;
  Phase phase_ = Phase::kConnecting;
  std::vector<Rank> ranks_;
  StepAggregator steps_;
  RootCause cause_;
  bool is_cancelled_ = false;
  bool is_stop_sent_ = false;
  std::string cancel_message_;
  int64_t prepare_deadline_ns_ = 0;
  int64_t settle_deadline_ns_ = 0;
  int64_t stop_deadline_ns_ = 0;
};

}  // namespace weft::coordinator

#endif  // WEFT_COORDINATOR_CORE_JOB_RUN_H_

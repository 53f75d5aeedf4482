#include "coordinator/core/job_run.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/describe.h"
#include "glog/logging.h"
#include "weft/v1/job_service.pb.h"
#include "weft/worker/v1/worker_control_service.pb.h"

namespace weft::coordinator {
namespace {

using worker::v1::AttachRequest;
using worker::v1::AttachResponse;

constexpr int kMaxNames = 8;
// What the message of a job begins with that stops since it was cancelled.
// Causes of errors begin with whom or what they are about.
constexpr char kCancelled[] = "cancelled";

// Ranks whose value is not the one that most ranks have; of values equally
// common, the one of the lowest rank counts.
std::vector<int> Outliers(const std::vector<uint64_t>& values) {
  std::map<uint64_t, int> counts;
  for (uint64_t value : values) ++counts[value];
  uint64_t common = values[0];
  for (uint64_t value : values) {
    if (counts[value] > counts[common]) common = value;
  }
  std::vector<int> outliers;
  for (size_t rank = 0; rank < values.size(); ++rank) {
    if (values[rank] != common) outliers.push_back(rank);
  }
  return outliers;
}

}  // namespace

JobRun::JobRun(Options options)
    : options_(std::move(options)),
      ranks_(options_.workers.size()),
      steps_(options_.workers.size()),
      prepare_deadline_ns_(After(options_.timeouts.prepare)) {}

bool JobRun::IsCancelling(const v1::Job& job) {
  return job.state() == v1::JOB_STATE_STOPPING &&
         absl::StartsWith(job.message(), kCancelled);
}

bool JobRun::is_drained() const {
  return std::all_of(ranks_.begin(), ranks_.end(),
                     [](const Rank& rank) { return rank.is_gone; });
}

void JobRun::OnMessage(int rank, const AttachRequest& message) {
  if (ranks_[rank].is_gone) return;
  switch (message.message_case()) {
    case AttachRequest::kRendezvous:
      OnRendezvous(rank, message.rendezvous());
      break;
    case AttachRequest::kPrepared:
      OnPrepared(rank, message.prepared());
      break;
    case AttachRequest::kStepReport:
      OnStepReport(rank, message.step_report());
      break;
    case AttachRequest::kEvalReport:
      OnEvalReport(rank, message.eval_report());
      break;
    case AttachRequest::kFinished:
      OnFinished(rank, message.finished());
      break;
    default:
      break;
  }
  Conclude();
}

void JobRun::OnOutOfTurn(int rank, absl::string_view what) {
  // A rank learns of a Stop only after what it sent before.
  if (is_stop_sent_) return;
  cause_.AddFault(absl::StrCat(Name(rank), " sent ", what, " out of turn"));
}

void JobRun::OnRendezvous(int rank, const worker::v1::Rendezvous& message) {
  Rank& sender = ranks_[rank];
  if (phase_ != Phase::kConnecting || sender.has_rendezvous) {
    return OnOutOfTurn(rank, "Rendezvous");
  }
  if (message.rank() != rank) {
    return cause_.AddFault(
        absl::StrCat(Name(rank), " takes itself for rank ", message.rank()));
  }
  sender.has_rendezvous = true;
  sender.rendezvous = message;
  if (std::all_of(ranks_.begin(), ranks_.end(),
                  [](const Rank& r) { return r.has_rendezvous; })) {
    CompleteRendezvous();
  }
}

void JobRun::CompleteRendezvous() {
  std::vector<uint64_t> counts;
  for (const Rank& rank : ranks_) {
    counts.push_back(rank.rendezvous.addresses_size());
  }
  const std::vector<int> outliers = Outliers(counts);
  if (!outliers.empty()) {
    return cause_.AddFault(absl::StrCat(
        "ranks have different numbers of transports: ", Name(outliers[0]),
        " has ", counts[outliers[0]]));
  }
  AttachResponse message;
  auto* complete = message.mutable_rendezvous_complete();
  complete->set_job_id(options_.job_id);
  complete->set_epoch(options_.epoch);
  for (Rank& rank : ranks_) *complete->add_ranks() = std::move(rank.rendezvous);
  phase_ = Phase::kPreparing;
  SendToAll(message);
}

void JobRun::OnPrepared(int rank, const worker::v1::Prepared& message) {
  Rank& sender = ranks_[rank];
  if (phase_ != Phase::kPreparing || sender.has_prepared) {
    return OnOutOfTurn(rank, "Prepared");
  }
  sender.has_prepared = true;
  sender.prepared = message;
  if (!std::all_of(ranks_.begin(), ranks_.end(),
                   [](const Rank& r) { return r.has_prepared; })) {
    return;
  }
  if (std::string found = Disagreement(); !found.empty()) {
    return cause_.AddFault(found);
  }
  Start();
}

std::string JobRun::Disagreement() const {
  const std::string units = Names([&](const Rank& rank) {
    return rank.prepared.assignment_hash() != options_.assignment_hash;
  });
  if (!units.empty()) {
    return absl::StrCat("the FSDP units as computed by ", units,
                        " differ from the plan's; is it another version?");
  }
  std::vector<uint64_t> hashes;
  for (const Rank& rank : ranks_) {
    hashes.push_back(rank.prepared.collective_hash());
  }
  const std::vector<int> outliers = Outliers(hashes);
  if (outliers.empty()) return "";
  const std::string names = Names([&](const Rank& rank) {
    const int index = &rank - ranks_.data();
    return std::binary_search(outliers.begin(), outliers.end(), index);
  });
  return absl::StrCat("the collectives that ", names,
                      " would issue differ from those of the other ranks");
}

void JobRun::Start() {
  AttachResponse message;
  message.mutable_start()->set_job_id(options_.job_id);
  message.mutable_start()->set_epoch(options_.epoch);
  phase_ = Phase::kRunning;
  options_.host->OnState(v1::JOB_STATE_RUNNING, "steps run");
  SendToAll(message);
}

void JobRun::OnStepReport(int rank, const worker::v1::StepReport& message) {
  if (phase_ == Phase::kEnded) return;
  if (phase_ != Phase::kRunning && phase_ != Phase::kStopping) {
    return OnOutOfTurn(rank, "StepReport");
  }
  absl::StatusOr<std::optional<v1::StepMetrics>> step =
      steps_.Add(rank, message.metrics());
  if (!step.ok()) {
    if (!is_stop_sent_) cause_.AddFault(step.status().message());
    return;
  }
  ranks_[rank].steps = message.metrics().step();
  if (step->has_value()) options_.host->OnStep(**step);
}

void JobRun::OnEvalReport(int rank, const worker::v1::EvalReport& message) {
  if (phase_ == Phase::kEnded) return;
  if (rank != 0 || (phase_ != Phase::kRunning && phase_ != Phase::kStopping)) {
    return OnOutOfTurn(rank, "EvalReport");
  }
  options_.host->OnEval(message.metrics());
}

void JobRun::OnFinished(int rank, const worker::v1::Finished& message) {
  ranks_[rank].is_gone = true;
  options_.host->OnRankDone(rank);
  const bool asked_to = is_stop_sent_;
  if (message.code() == 0) {
    const int64_t reported = ranks_[rank].steps;
    if (asked_to || (phase_ == Phase::kRunning && reported == options_.steps &&
                     message.step() == options_.steps)) {
      return;
    }
    cause_.AddFault(absl::StrCat(
        Name(rank), " finished after step ", message.step(), " of ",
        options_.steps, ", having reported ", reported, ", without an error"));
    return;
  }
  const bool follows_stop =
      asked_to &&
      message.code() == static_cast<int>(absl::StatusCode::kCancelled);
  if (follows_stop) return;
  cause_.AddError(rank, options_.workers[rank], message.code(),
                  message.message());
}

void JobRun::OnLost(int rank, absl::string_view why) {
  if (ranks_[rank].is_gone) return;
  ranks_[rank].is_gone = true;
  cause_.AddLoss(rank, options_.workers[rank], why);
  Conclude();
}

void JobRun::Tick() {
  const int64_t now = options_.clock->MonotonicNanos();
  if ((phase_ == Phase::kConnecting || phase_ == Phase::kPreparing) &&
      now >= prepare_deadline_ns_) {
    const bool connecting = phase_ == Phase::kConnecting;
    cause_.AddFault(absl::StrCat(
        Names([&](const Rank& rank) {
          return connecting ? !rank.has_rendezvous : !rank.has_prepared;
        }),
        connecting ? " did not connect" : " did not get ready", " within ",
        absl::FormatDuration(options_.timeouts.prepare)));
  }
  if (phase_ == Phase::kStopping && !is_cancelled_ &&
      now >= settle_deadline_ns_) {
    End(v1::JOB_STATE_FAILED, cause_.text());
  }
  if (is_stop_sent_ && now >= stop_deadline_ns_) {
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (ranks_[rank].is_gone) continue;
      ranks_[rank].is_gone = true;
      LOG(WARNING) << "job=" << options_.job_id << " rank=" << rank
                   << " worker=" << options_.workers[rank]
                   << " did not stop in time";
      options_.host->OnRankStuck(rank);
    }
  }
  Conclude();
}

void JobRun::Forgive(absl::Duration stall) {
  const Timeouts& timeouts = options_.timeouts;
  const auto move = [&](int64_t deadline_ns, absl::Duration timeout) {
    return std::min(After(timeout),
                    deadline_ns + absl::ToInt64Nanoseconds(stall));
  };
  prepare_deadline_ns_ = move(prepare_deadline_ns_, timeouts.prepare);
  settle_deadline_ns_ = move(settle_deadline_ns_, timeouts.settle);
  stop_deadline_ns_ = move(stop_deadline_ns_, timeouts.stop);
}

void JobRun::Cancel(absl::string_view reason) {
  if (phase_ == Phase::kStopping || phase_ == Phase::kEnded) return;
  is_cancelled_ = true;
  cancel_message_ = WithReason(kCancelled, reason);
  phase_ = Phase::kStopping;
  options_.host->OnState(v1::JOB_STATE_STOPPING, cancel_message_);
  StopRanks(cancel_message_);
  Conclude();
}

void JobRun::Abandon(absl::string_view why) {
  if (phase_ != Phase::kEnded && is_cancelled_) {
    End(v1::JOB_STATE_CANCELLED, cancel_message_);
  } else if (phase_ != Phase::kEnded) {
    End(v1::JOB_STATE_FAILED,
        cause_.is_empty() ? std::string(why) : cause_.text());
  }
  StopRanks(why);
}

void JobRun::Conclude() {
  if (phase_ == Phase::kEnded) return;
  if (is_cancelled_) {
    if (is_drained()) {
      std::string message = cancel_message_;
      if (cause_.is_clear()) absl::StrAppend(&message, "; ", cause_.text());
      End(v1::JOB_STATE_CANCELLED, message);
    }
    return;
  }
  if (cause_.is_empty()) {
    if (is_drained()) {
      End(v1::JOB_STATE_SUCCEEDED,
          absl::StrCat("all ", options_.steps, " steps ran"));
    }
    return;
  }
  if (cause_.is_clear() || is_drained()) {
    End(v1::JOB_STATE_FAILED, cause_.text());
  } else if (phase_ != Phase::kStopping) {
    phase_ = Phase::kStopping;
    settle_deadline_ns_ = After(options_.timeouts.settle);
    options_.host->OnState(v1::JOB_STATE_STOPPING, cause_.text());
  }
  StopRanks(cause_.text());
}

void JobRun::StopRanks(absl::string_view reason) {
  if (is_stop_sent_) return;
  is_stop_sent_ = true;
  stop_deadline_ns_ = After(options_.timeouts.stop);
  AttachResponse message;
  message.mutable_stop()->set_job_id(options_.job_id);
  message.mutable_stop()->set_epoch(options_.epoch);
  message.mutable_stop()->set_reason(std::string(reason));
  SendToAll(message);
}

void JobRun::End(v1::JobState state, const std::string& message) {
  phase_ = Phase::kEnded;
  options_.host->OnState(state, message);
}

std::string JobRun::Name(int rank) const {
  return absl::StrCat("rank ", rank, " (worker ", options_.workers[rank], ")");
}

template <typename Predicate>
std::string JobRun::Names(Predicate waits) const {
  std::vector<std::string> names;
  int more = 0;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (!waits(ranks_[rank])) continue;
    if (names.size() < kMaxNames) {
      names.push_back(Name(rank));
    } else {
      ++more;
    }
  }
  if (more > 0) names.push_back(absl::StrCat(more, " more ranks"));
  return absl::StrJoin(names, ", ");
}

void JobRun::SendToAll(const AttachResponse& message) {
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (!ranks_[rank].is_gone) options_.host->Send(rank, message);
  }
}

int64_t JobRun::After(absl::Duration timeout) const {
  return options_.clock->MonotonicNanos() + absl::ToInt64Nanoseconds(timeout);
}

}  // namespace weft::coordinator

#include "kernels/comm/loopback/group.h"

#include <chrono>

#include "absl/strings/str_cat.h"

namespace weft::comm::loopback {

Group::Group(absl::string_view name, absl::Span<const int> ranks)
    : name_(name), ranks_(ranks.begin(), ranks.end()), calls_(ranks.size()) {
  MutexLock lock(&mu_);
  has_arrived_.resize(ranks.size(), false);
}

absl::Status Group::Arrive(int member, const Call& call,
                           absl::Duration deadline,
                           const Cancellation* cancellation) {
  const auto until = DeadlineAfter(deadline);
  const int rank = ranks_[member];
  MutexLock lock(&mu_);
  if (!error_.ok()) return error_;
  calls_[member] = call;
  has_arrived_[member] = true;
  const int64_t meeting = meetings_;
  if (MeetLocked()) {
    has_arrived_.assign(ranks_.size(), false);
    return absl::OkStatus();
  }
  bool is_late = false;
  while (meetings_ == meeting) {
    absl::Status error;
    if (cancellation != nullptr && cancellation->cancelled()) {
      error = CancelledError(name_, call.id, rank, cancellation->reason(),
                             MissingLocked());
    } else if (!error_.ok()) {
      error = error_;
    } else if (is_late) {
      error = DeadlineError(name_, call.id, rank, deadline, MissingLocked());
    }
    if (!error.ok()) {
      WithdrawLocked(member);
      BreakLocked(member, error);
      return error;
    }
    is_late = !met_.WaitUntil(&mu_, until);
  }
  return absl::OkStatus();
}

void Group::Meet() {
  MutexLock lock(&mu_);
  const int64_t meeting = meetings_;
  if (MeetLocked()) return;
  while (meetings_ == meeting) met_.Wait(&mu_);
}

absl::Status Group::Depart(int member, const absl::Status& status) {
  MutexLock lock(&mu_);
  if (!status.ok()) BreakLocked(member, status);
  const int64_t meeting = meetings_;
  if (!MeetLocked()) {
    while (meetings_ == meeting) met_.Wait(&mu_);
  }
  return status.ok() ? error_ : status;
}

void Group::Break(int member, const absl::Status& error) {
  MutexLock lock(&mu_);
  BreakLocked(member, error);
}

void Group::Wake() {
  MutexLock lock(&mu_);
  met_.SignalAll();
}

// Returns whether this member is the last one to come.
bool Group::MeetLocked() {
  if (++present_ < size()) return false;
  present_ = 0;
  ++meetings_;
  met_.SignalAll();
  return true;
}

void Group::WithdrawLocked(int member) {
  has_arrived_[member] = false;
  --present_;
}

void Group::BreakLocked(int member, const absl::Status& error) {
  if (!error_.ok()) return;
  error_ = absl::Status(
      error.code(), absl::StrCat("rank ", ranks_[member], " left group ", name_,
                                 ": ", error.message()));
  met_.SignalAll();
}

std::vector<int> Group::MissingLocked() const {
  std::vector<int> missing;
  for (int i = 0; i < size(); ++i) {
    if (!has_arrived_[i]) missing.push_back(ranks_[i]);
  }
  return missing;
}

}  // namespace weft::comm::loopback

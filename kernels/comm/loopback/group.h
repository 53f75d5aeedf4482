// Where the ranks of one in-process group meet.
#ifndef WEFT_KERNELS_COMM_LOOPBACK_GROUP_H_
#define WEFT_KERNELS_COMM_LOOPBACK_GROUP_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/dtype.h"
#include "base/mutex.h"
#include "kernels/comm/cancellation.h"
#include "kernels/comm/collective.h"
#include "kernels/comm/communicator.h"

namespace weft::comm::loopback {

// What one member brings to a collective.
struct Call {
  CollectiveId id;
  const void* send = nullptr;
  void* recv = nullptr;
  int64_t count = 0;  // bytes, or elements of a sum
  DType dtype = DType::kF32;
  int root = 0;
  absl::Span<const Segment> sends;
  absl::Span<const Segment> recvs;
};

// A meeting place. A collective is: Arrive(), read the calls and the memory of
// the others, Depart(). Between the two nobody waits for a deadline, so memory
// that is being read stays.
//
//   waiting for all -> all have arrived -> copying -> all have departed
//        |
//        +-> broken (a deadline, a cancellation, a mismatch): stays so
//
// Guarantees: members see what others wrote before they arrived, or departed.
// Thread-safe; each member is one thread at a time.
class Group {
 public:
  // `ranks` are the members' ranks in the world, ascending.
  Group(absl::string_view name, absl::Span<const int> ranks);

  const std::string& name() const { return name_; }
  const std::vector<int>& ranks() const { return ranks_; }
  int size() const { return static_cast<int>(ranks_.size()); }

  // Publishes `call`, and waits until all members have done so, the deadline
  // has passed or `cancellation` (if not null) has fired. An error breaks the
  // group; when there is one, nobody reads `call`.
  absl::Status Arrive(int member, const Call& call, absl::Duration deadline,
                      const Cancellation* cancellation);

  // The call of a member. Only between own arrival and departure.
  const Call& call(int member) const { return calls_[member]; }

  // Waits for all members, who are all on their way here.
  void Meet();

  // Waits for all members. An error that any member brings breaks the group,
  // and all return it.
  absl::Status Depart(int member, const absl::Status& status);

  // Breaks the group from outside a collective; the first error stays.
  void Break(int member, const absl::Status& error);

  // Makes waiting members look at their cancellation.
  void Wake();

 private:
  bool MeetLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void WithdrawLocked(int member) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void BreakLocked(int member, const absl::Status& error)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::vector<int> MissingLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::string name_;
  const std::vector<int> ranks_;
  // A member's call is written by it before all have arrived and read by the
  // others after that and before all have departed: the meetings order it.
  std::vector<Call> calls_;

  Mutex mu_;
  CondVar met_;
  int present_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t meetings_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<bool> has_arrived_ ABSL_GUARDED_BY(mu_);
  absl::Status error_ ABSL_GUARDED_BY(mu_);
};

}  // namespace weft::comm::loopback

#endif  // WEFT_KERNELS_COMM_LOOPBACK_GROUP_H_

// Who the workers are, and which of them are alive, free or busy.
#ifndef WEFT_COORDINATOR_CORE_MEMBERSHIP_H_
#define WEFT_COORDINATOR_CORE_MEMBERSHIP_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/strong_int.h"
#include "coordinator/core/worker_link.h"
#include "weft/v1/cluster_service.pb.h"
#include "weft/worker/v1/worker_control_service.pb.h"

namespace weft::coordinator {

// Oldest and newest version of worker control that this coordinator speaks.
inline constexpr int kMinProtocolVersion = 1;
inline constexpr int kMaxProtocolVersion = 1;

// One stream of one worker. A worker that comes back gets a new one, so that
// what an old stream still delivers is told from what the new one does.
WEFT_STRONG_INT(SessionId, int64_t);

struct Member {
  worker::v1::Register info;  // worker_id is set
  SessionId session;
  std::shared_ptr<WorkerLink> link;  // its stream holds it too; null when lost
  v1::WorkerState state = v1::WORKER_STATE_IDLE;
  int protocol_version = 0;
  absl::Time last_heartbeat;
  int64_t last_heard_ns = 0;
  v1::ProcessFigures figures;
  int64_t restarts = 0;  // times the id came back with another incarnation

  // While busy.
  std::string job_id;
  int64_t epoch = 0;
  int rank = 0;

  const std::string& id() const { return info.worker_id(); }
  bool is_idle() const { return state == v1::WORKER_STATE_IDLE; }
  bool is_attached() const { return state != v1::WORKER_STATE_LOST; }
  // As clients see it.
  v1::Worker ToProto() const;
};

// The workers. Not thread-safe; pointers to members stay valid until the member
// is forgotten.
class Membership {
 public:
  struct Options {
    Clock* clock = nullptr;
    // An attached worker not heard of for this long is overdue.
    absl::Duration heartbeat_timeout = absl::Seconds(4);
    // A lost worker is listed for this long.
    absl::Duration lost_kept = absl::Minutes(10);
  };

  explicit Membership(Options options) : options_(options) {}

  // Attaches a worker and names it when it has no id. A member of the same id
  // must be lost. FAILED_PRECONDITION when no protocol version is spoken by
  // both, ALREADY_EXISTS when a living worker holds the id.
  absl::StatusOr<Member*> Attach(worker::v1::Register info,
                                 std::shared_ptr<WorkerLink> link);

  // Null when there is none, or when it is not attached.
  Member* FindAttached(SessionId session);
  Member* FindAttached(absl::string_view worker_id);
  // Null when there is none, or when it has come back.
  const Member* FindLost(SessionId session) const;

  // Notes a sign of life.
  void Hear(Member& member);
  void Detach(Member& member);
  void Assign(Member& member, absl::string_view job_id, int64_t epoch,
              int rank);
  void Release(Member& member);

  // The last `stall` counts as no time: nobody could be heard.
  void Forgive(absl::Duration stall);
  // Attached workers not heard of for too long.
  std::vector<Member*> Overdue();
  // By id; "w-2" comes before "w-10".
  std::vector<Member*> Attached();
  // Attached and free, in the same order.
  std::vector<Member*> Idle();
  // Removes workers lost long ago; returns their ids.
  std::vector<std::string> ForgetLost();

  int attached() const;
  // All workers by id, as clients see them.
  std::vector<v1::Worker> List() const;

 private:
  // Orders runs of digits by value.
  struct NaturalLess {
    using is_transparent = void;
    bool operator()(absl::string_view a, absl::string_view b) const;
  };

  std::string NewId();

  const Options options_;
  int64_t next_session_ = 1;
  int64_t next_name_ = 0;
  std::map<std::string, Member, NaturalLess> members_;
};

}  // namespace weft::coordinator

#endif  // WEFT_COORDINATOR_CORE_MEMBERSHIP_H_

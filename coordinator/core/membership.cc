#include "coordinator/core/membership.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/describe.h"
#include "google/protobuf/timestamp.pb.h"
#include "weft/v1/cluster_service.pb.h"
#include "weft/worker/v1/worker_control_service.pb.h"

namespace weft::coordinator {
namespace {

constexpr size_t kMaxIdSize = 63;
constexpr size_t kMaxTextSize = 255;
constexpr int kMaxLibraries = 32;

absl::Status CheckId(absl::string_view id) {
  const bool known = std::all_of(id.begin(), id.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.';
  });
  if (known && id.size() <= kMaxIdSize) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("worker_id=", Quoted(id), " is not legal; must be at most ",
                   kMaxIdSize, " characters of [A-Za-z0-9._-]"));
}

// What goes into logs, messages and terminals is text.
void CleanTexts(worker::v1::Register& info) {
  info.set_host(Shortened(info.host(), kMaxTextSize));
  info.set_device(Shortened(info.device(), kMaxTextSize));
  info.set_http_address(Shortened(info.http_address(), kMaxTextSize));
  while (info.libraries_size() > kMaxLibraries) {
    info.mutable_libraries()->RemoveLast();
  }
  for (v1::Library& library : *info.mutable_libraries()) {
    library.set_name(Shortened(library.name(), kMaxTextSize));
    library.set_version(Shortened(library.version(), kMaxTextSize));
  }
}

absl::StatusOr<int> CommonVersion(const worker::v1::Register& info) {
  const int version =
      std::min<int>(info.max_protocol_version(), kMaxProtocolVersion);
  if (version >= kMinProtocolVersion &&
      version >= info.min_protocol_version()) {
    return version;
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "the worker speaks protocol versions ", info.min_protocol_version(),
      " to ", info.max_protocol_version(), ", this coordinator ",
      kMinProtocolVersion, " to ", kMaxProtocolVersion,
      "; upgrade the older one"));
}

// Takes a run of digits, or one character, off the front of `text`.
absl::string_view TakePiece(absl::string_view& text) {
  size_t size = 0;
  while (size < text.size() && absl::ascii_isdigit(text[size])) ++size;
  const absl::string_view piece = text.substr(0, std::max<size_t>(1, size));
  text.remove_prefix(piece.size());
  return piece;
}

}  // namespace

v1::Worker Member::ToProto() const {
  v1::Worker worker;
  worker.set_id(id());
  worker.set_state(state);
  worker.set_host(info.host());
  worker.set_pid(info.pid());
  worker.set_device(info.device());
  worker.set_device_memory_bytes(info.device_memory_bytes());
  worker.set_job_id(job_id);
  worker.set_rank(rank);
  worker.set_incarnation(info.incarnation());
  const int64_t ns = absl::ToUnixNanos(last_heartbeat);
  worker.mutable_last_heartbeat()->set_seconds(ns / 1000000000);
  worker.mutable_last_heartbeat()->set_nanos(ns % 1000000000);
  *worker.mutable_figures() = figures;
  worker.set_http_address(info.http_address());
  *worker.mutable_libraries() = info.libraries();
  worker.set_restarts(restarts);
  return worker;
}

bool Membership::NaturalLess::operator()(absl::string_view a,
                                         absl::string_view b) const {
  const absl::string_view whole_a = a;
  const absl::string_view whole_b = b;
  while (!a.empty() && !b.empty()) {
    absl::string_view x = TakePiece(a);
    absl::string_view y = TakePiece(b);
    if (absl::ascii_isdigit(x[0]) && absl::ascii_isdigit(y[0])) {
      x.remove_prefix(std::min(x.find_first_not_of('0'), x.size()));
      y.remove_prefix(std::min(y.find_first_not_of('0'), y.size()));
      if (x.size() != y.size()) return x.size() < y.size();
    }
    if (x != y) return x < y;
  }
  if (a.empty() != b.empty()) return a.empty();
  return whole_a < whole_b;  // "w-1" and "w-01" are different ids
}

absl::StatusOr<Member*> Membership::Attach(worker::v1::Register info,
                                           std::shared_ptr<WorkerLink> link) {
  if (absl::Status status = CheckId(info.worker_id()); !status.ok()) {
    return status;
  }
  const absl::StatusOr<int> version = CommonVersion(info);
  if (!version.ok()) return version.status();
  CleanTexts(info);
  if (info.worker_id().empty()) info.set_worker_id(NewId());
  const auto [it, is_new] = members_.try_emplace(info.worker_id());
  Member& member = it->second;
  if (member.link != nullptr) {
    return absl::AlreadyExistsError(absl::StrCat(
        "worker ", info.worker_id(), " is attached already, from host ",
        member.info.host(), " pid ", member.info.pid(),
        "; give each worker an id of its own"));
  }
  const bool is_restart =
      !is_new && member.info.incarnation() != info.incarnation();
  const int64_t restarts = member.restarts + (is_restart ? 1 : 0);
  member = Member();
  member.restarts = restarts;
  member.info = std::move(info);
  member.session = SessionId(next_session_++);
  member.link = std::move(link);
  member.protocol_version = *version;
  Hear(member);
  return &member;
}

Member* Membership::FindAttached(SessionId session) {
  for (auto& [id, member] : members_) {
    if (member.session == session && member.is_attached()) return &member;
  }
  return nullptr;
}

Member* Membership::FindAttached(absl::string_view worker_id) {
  auto it = members_.find(worker_id);
  if (it == members_.end() || !it->second.is_attached()) return nullptr;
  return &it->second;
}

const Member* Membership::FindLost(SessionId session) const {
  for (const auto& [id, member] : members_) {
    if (member.session == session && !member.is_attached()) return &member;
  }
  return nullptr;
}

void Membership::Hear(Member& member) {
  member.last_heartbeat = options_.clock->Now();
  member.last_heard_ns = options_.clock->MonotonicNanos();
}

void Membership::Detach(Member& member) {
  Release(member);
  member.state = v1::WORKER_STATE_LOST;
  member.link = nullptr;
}

void Membership::Assign(Member& member, absl::string_view job_id, int64_t epoch,
                        int rank) {
  member.state = v1::WORKER_STATE_BUSY;
  member.job_id = std::string(job_id);
  member.epoch = epoch;
  member.rank = rank;
}

void Membership::Release(Member& member) {
  member.state = v1::WORKER_STATE_IDLE;
  member.job_id.clear();
  member.epoch = 0;
  member.rank = 0;
}

void Membership::Forgive(absl::Duration stall) {
  const int64_t now = options_.clock->MonotonicNanos();
  for (auto& [id, member] : members_) {
    if (!member.is_attached()) continue;
    member.last_heard_ns =
        std::min(now, member.last_heard_ns + absl::ToInt64Nanoseconds(stall));
  }
}

std::vector<Member*> Membership::Overdue() {
  const int64_t limit = options_.clock->MonotonicNanos() -
                        absl::ToInt64Nanoseconds(options_.heartbeat_timeout);
  std::vector<Member*> overdue;
  for (auto& [id, member] : members_) {
    if (member.is_attached() && member.last_heard_ns < limit) {
      overdue.push_back(&member);
    }
  }
  return overdue;
}

std::vector<Member*> Membership::Attached() {
  std::vector<Member*> attached;
  for (auto& [id, member] : members_) {
    if (member.is_attached()) attached.push_back(&member);
  }
  return attached;
}

std::vector<Member*> Membership::Idle() {
  std::vector<Member*> idle;
  for (auto& [id, member] : members_) {
    if (member.is_idle()) idle.push_back(&member);
  }
  return idle;
}

std::vector<std::string> Membership::ForgetLost() {
  const int64_t limit = options_.clock->MonotonicNanos() -
                        absl::ToInt64Nanoseconds(options_.lost_kept);
  std::vector<std::string> forgotten;
  for (auto it = members_.begin(); it != members_.end();) {
    if (!it->second.is_attached() && it->second.last_heard_ns < limit) {
      forgotten.push_back(it->first);
      it = members_.erase(it);
    } else {
      ++it;
    }
  }
  return forgotten;
}

int Membership::attached() const {
  return std::count_if(members_.begin(), members_.end(), [](const auto& entry) {
    return entry.second.is_attached();
  });
}

std::vector<v1::Worker> Membership::List() const {
  std::vector<v1::Worker> workers;
  for (const auto& [id, member] : members_) {
    workers.push_back(member.ToProto());
  }
  return workers;
}

std::string Membership::NewId() {
  while (true) {
    std::string id = absl::StrCat("worker-", next_name_++);
    if (members_.count(id) == 0) return id;
  }
}

}  // namespace weft::coordinator

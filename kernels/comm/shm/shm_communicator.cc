#include "kernels/comm/shm/shm_communicator.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "kernels/comm/bytes.h"
#include "kernels/comm/segments.h"
#include "kernels/comm/shm/bell.h"

namespace weft::comm::shm {
namespace {

int64_t BytesTo(absl::Span<const Segment> segments, int peer) {
  int64_t bytes = 0;
  for (const Segment& segment : segments) {
    if (segment.peer == peer) bytes += segment.bytes;
  }
  return bytes;
}

// FNV-1a of the sizes of those of a peer that are not empty.
uint64_t HashOfSizes(absl::Span<const Segment> segments, int peer) {
  uint64_t hash = 14695981039346656037u;
  for (const Segment& segment : segments) {
    if (segment.peer != peer || segment.bytes == 0) continue;
    hash = (hash ^ static_cast<uint64_t>(segment.bytes)) * 1099511628211u;
  }
  return hash;
}

bool Matches(const Call& a, const Call& b) {
  return a.kind == b.kind && a.layer == b.layer &&
         a.microbatch == b.microbatch && a.dtype == b.dtype &&
         a.root == b.root && a.count == b.count &&
         std::strncmp(a.op, b.op, sizeof(a.op)) == 0;
}

std::string CallText(const Call& call) {
  return absl::StrCat(
      Name(static_cast<CollectiveKind>(call.kind)), " (op ",
      std::string(call.op, ::strnlen(call.op, sizeof(call.op))), ", layer ",
      call.layer, ", microbatch ", call.microbatch, ") of ", call.count, " in ",
      weft::Name(static_cast<DType>(call.dtype)), " from root ", call.root);
}

}  // namespace

ShmCommunicator::ShmCommunicator(MemberOptions options)
    : o_(std::move(options)),
      sources_(o_.boards.size()),
      sent_(o_.boards.size()),
      received_(o_.boards.size()) {
  if (o_.cancellation != nullptr) o_.cancellation->AddListener(this);
}

ShmCommunicator::~ShmCommunicator() {
  if (o_.cancellation != nullptr) o_.cancellation->RemoveListener(this);
}

void ShmCommunicator::OnCancelled() { Ring(&own().bell); }

void ShmCommunicator::RingOthers() {
  for (int m = 0; m < size(); ++m) {
    if (m != o_.member) Ring(&o_.boards[m]->bell);
  }
}

void ShmCommunicator::Begin(CollectiveKind kind, const CollectiveTag& tag,
                            int64_t count, DType dtype, int root) {
  id_.kind = kind;
  id_.tag = tag;
  until_ = absl::Now() + o_.deadline;
  // What others still read of the round before is not this: they have taken
  // it, or this rank fails before it shows anything.
  if (!error_.ok() || size() == 1) return;
  error_ = Await(&GroupBoard::taken, round_);
  if (!error_.ok()) return;
  Call& call = own().call;
  call.kind = static_cast<int32_t>(kind);
  call.layer = tag.layer;
  call.microbatch = tag.microbatch;
  call.dtype = static_cast<int32_t>(dtype);
  call.root = root;
  call.count = count;
  std::memset(call.op, 0, sizeof(call.op));
  std::strncpy(call.op, tag.op, sizeof(call.op) - 1);
  own().has_more = 0;
}

absl::Status ShmCommunicator::Named(const absl::Status& error) const {
  return Annotate(error, Describe(o_.name, id_, o_.ranks[o_.member]));
}

absl::Status ShmCommunicator::End(const absl::Status& status, int64_t sent) {
  if (status.ok()) {
    ++id_.sequence;
    wire_bytes_.fetch_add(sent, std::memory_order_relaxed);
    return absl::OkStatus();
  }
  if (error_.ok() || Load(own().left) == 0) {
    error_ = status;
    const size_t length =
        std::min(status.message().size(), sizeof(own().reason) - 1);
    std::memcpy(own().reason, status.message().data(), length);
    own().reason[length] = '\0';
    Store(&own().left, static_cast<uint32_t>(status.raw_code()));
    RingOthers();
  }
  return error_;
}

absl::Status ShmCommunicator::Round(Step fill, Step read) {
  if (!error_.ok()) return error_;
  if (size() == 1) return read();
  RETURN_IF_ERROR(Await(&GroupBoard::taken, round_));
  RETURN_IF_ERROR(fill());
  Store(&own().published, ++round_);
  RingOthers();
  RETURN_IF_ERROR(Await(&GroupBoard::published, round_));
  RETURN_IF_ERROR(CheckSameCall());
  RETURN_IF_ERROR(read());
  Store(&own().taken, round_);
  RingOthers();
  return absl::OkStatus();
}

absl::Status ShmCommunicator::Rounds(
    int64_t bytes, int64_t piece,
    absl::FunctionRef<void(int64_t at, int64_t bytes)> fill,
    absl::FunctionRef<void(int64_t at, int64_t bytes)> read) {
  int64_t at = 0;
  do {
    const int64_t n = std::min(piece, bytes - at);
    const auto do_fill = [&] {
      fill(at, n);
      return absl::OkStatus();
    };
    const auto do_read = [&] {
      read(at, n);
      return absl::OkStatus();
    };
    RETURN_IF_ERROR(Round(do_fill, do_read));
    at += n;
  } while (at < bytes);
  return absl::OkStatus();
}

std::vector<int> ShmCommunicator::Missing(Flag GroupBoard::*flag,
                                          uint32_t wanted) const {
  std::vector<int> missing;
  for (int m = 0; m < size(); ++m) {
    if (m != o_.member && !HasReached(Load(o_.boards[m]->*flag), wanted)) {
      missing.push_back(o_.ranks[m]);
    }
  }
  return missing;
}

// Why a wait for those that are missing cannot go on.
absl::Status ShmCommunicator::CheckWait(Flag GroupBoard::*flag,
                                        uint32_t wanted) const {
  const int rank = o_.ranks[o_.member];
  if (o_.cancellation != nullptr && o_.cancellation->cancelled()) {
    return CancelledError(o_.name, id_, rank, o_.cancellation->reason(),
                          Missing(flag, wanted));
  }
  for (int m = 0; m < size(); ++m) {
    const uint32_t code = Load(o_.boards[m]->left);
    if (m == o_.member || code == 0) continue;
    return absl::Status(
        static_cast<absl::StatusCode>(code),
        absl::StrCat(Describe(o_.name, id_, rank), ": rank ", o_.ranks[m],
                     " has left the group: ", o_.boards[m]->reason));
  }
  if (absl::Now() < until_) return absl::OkStatus();
  return DeadlineError(o_.name, id_, rank, o_.deadline, Missing(flag, wanted));
}

absl::Status ShmCommunicator::Await(Flag GroupBoard::*flag, uint32_t wanted) {
  while (true) {
    const uint32_t rung = Load(own().bell);
    bool all = true;
    for (const GroupBoard* board : o_.boards) {
      all &= board == &own() || HasReached(Load(board->*flag), wanted);
    }
    const bool cancelled =
        o_.cancellation != nullptr && o_.cancellation->cancelled();
    if (all && !cancelled) return absl::OkStatus();
    RETURN_IF_ERROR(CheckWait(flag, wanted));
    SleepUntilRung(own().bell, rung, until_ - absl::Now());
  }
}

absl::Status ShmCommunicator::CheckSameCall() const {
  const Call& mine = o_.boards[o_.member]->call;
  for (int m = 0; m < size(); ++m) {
    const Call& theirs = o_.boards[m]->call;
    if (Matches(mine, theirs)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        Describe(o_.name, id_, o_.ranks[o_.member]), ": ranks disagree: rank ",
        o_.ranks[o_.member], " calls ", CallText(mine), ", rank ", o_.ranks[m],
        " calls ", CallText(theirs)));
  }
  return absl::OkStatus();
}

absl::Status ShmCommunicator::Gather(const void* send, void* recv,
                                     int64_t bytes) {
  CopyBytes(At(recv, o_.member * bytes), send, bytes);
  return Rounds(
      bytes, kWindowBytes,
      [&](int64_t at, int64_t n) { CopyBytes(own().window, At(send, at), n); },
      [&](int64_t at, int64_t n) {
        for (int m = 0; m < size(); ++m) {
          if (m == o_.member) continue;
          CopyBytes(At(recv, m * bytes + at), o_.boards[m]->window, n);
        }
      });
}

absl::Status ShmCommunicator::Scatter(const void* send, void* recv,
                                      int64_t elements, DType dtype) {
  const int64_t width = SizeOf(dtype);
  const int64_t bytes = elements * width;
  const int64_t slot = slot_bytes();
  return Rounds(
      bytes, slot,
      [&](int64_t at, int64_t n) {
        for (int m = 0; m < size(); ++m) {
          if (m == o_.member) continue;
          CopyBytes(own().window + m * slot, At(send, m * bytes + at), n);
        }
      },
      [&](int64_t at, int64_t n) {
        for (int m = 0; m < size(); ++m) {
          sources_[m] = m == o_.member
                            ? At(send, m * bytes + at)
                            : o_.boards[m]->window + o_.member * slot;
        }
        SumInOrder(sources_, At(recv, at), n / width, dtype);
      });
}

int64_t ShmCommunicator::Advance(
    absl::Span<const Segment> segments, int peer, int64_t bytes, Cursor& cursor,
    absl::FunctionRef<void(int64_t offset, int64_t bytes)> copy) {
  int64_t moved = 0;
  while (moved < bytes && cursor.segment < segments.size()) {
    const Segment& segment = segments[cursor.segment];
    const int64_t left = segment.peer == peer ? segment.bytes - cursor.done : 0;
    const int64_t n = std::min(left, bytes - moved);
    if (n > 0) copy(segment.offset + cursor.done, n);
    moved += n;
    cursor.done += n;
    if (n < left) break;
    cursor = {cursor.segment + 1, 0};
  }
  return moved;
}

void ShmCommunicator::FillParts(const void* send,
                                absl::Span<const Segment> sends) {
  const int64_t slot = slot_bytes();
  own().has_more = 0;
  for (int m = 0; m < size(); ++m) {
    Part& part = own().parts[m];
    part.bytes = 0;
    if (m == o_.member) continue;
    part.offset = m * slot;
    std::byte* to = own().window + part.offset;
    part.bytes =
        Advance(sends, m, slot, sent_[m], [&](int64_t offset, int64_t n) {
          CopyBytes(to, At(send, offset), n);
          to += n;
        });
    part.all_bytes = BytesTo(sends, m);
    part.segments = HashOfSizes(sends, m);
    // A full slot may be the last one: then the next round is empty.
    if (part.bytes == slot) own().has_more = 1;
  }
}

absl::Status ShmCommunicator::CheckParts(
    absl::Span<const Segment> recvs) const {
  for (int m = 0; m < size(); ++m) {
    if (m == o_.member) continue;
    const Part& part = o_.boards[m]->parts[o_.member];
    const int64_t wanted = BytesTo(recvs, m);
    if (part.all_bytes == wanted && part.segments == HashOfSizes(recvs, m)) {
      continue;
    }
    return absl::InvalidArgumentError(absl::StrCat(
        Describe(o_.name, id_, o_.ranks[o_.member]), ": rank ", o_.ranks[m],
        " sends ", part.all_bytes, " bytes to rank ", o_.ranks[o_.member],
        ", which expects ", wanted, " bytes, or they differ in segments"));
  }
  return absl::OkStatus();
}

absl::Status ShmCommunicator::ReadParts(void* recv,
                                        absl::Span<const Segment> recvs) {
  RETURN_IF_ERROR(CheckParts(recvs));
  for (int m = 0; m < size(); ++m) {
    if (m == o_.member) continue;
    const Part& part = o_.boards[m]->parts[o_.member];
    const std::byte* from = o_.boards[m]->window + part.offset;
    Advance(recvs, m, part.bytes, received_[m], [&](int64_t offset, int64_t n) {
      CopyBytes(At(recv, offset), from, n);
      from += n;
    });
  }
  return absl::OkStatus();
}

absl::Status ShmCommunicator::Exchange(const void* send,
                                       absl::Span<const Segment> sends,
                                       void* recv,
                                       absl::Span<const Segment> recvs) {
  RETURN_IF_ERROR(
      CopySegments({send, sends, o_.member}, {recv, recvs, o_.member}));
  std::fill(sent_.begin(), sent_.end(), Cursor());
  std::fill(received_.begin(), received_.end(), Cursor());
  bool has_more = size() > 1;
  while (has_more) {
    const auto fill = [&] {
      FillParts(send, sends);
      return absl::OkStatus();
    };
    const auto read = [&] {
      has_more = false;
      for (const GroupBoard* board : o_.boards) has_more |= board->has_more;
      return ReadParts(recv, recvs);
    };
    RETURN_IF_ERROR(Round(fill, read));
  }
  return absl::OkStatus();
}

absl::Status ShmCommunicator::AllGather(const void* send, void* recv,
                                        int64_t bytes, device::Stream&,
                                        const CollectiveTag& tag) {
  Begin(CollectiveKind::kAllGather, tag, bytes);
  absl::Status status = error_;
  if (status.ok()) status = Named(CheckBytes(bytes));
  if (status.ok()) status = Gather(send, recv, bytes);
  return End(status, bytes * (size() - 1));
}

absl::Status ShmCommunicator::ReduceScatter(const void* send, void* recv,
                                            int64_t elements, DType dtype,
                                            device::Stream&,
                                            const CollectiveTag& tag) {
  Begin(CollectiveKind::kReduceScatter, tag, elements, dtype);
  absl::Status status = error_;
  if (status.ok()) status = Named(CheckSummable(dtype, elements));
  if (status.ok()) status = Scatter(send, recv, elements, dtype);
  return End(status, elements * SizeOf(dtype) * (size() - 1));
}

absl::Status ShmCommunicator::AllReduce(void* data, int64_t elements,
                                        DType dtype, device::Stream&,
                                        const CollectiveTag& tag) {
  Begin(CollectiveKind::kAllReduce, tag, elements, dtype);
  absl::Status status = error_;
  if (status.ok()) status = Named(CheckDivisible(dtype, elements, size()));
  const int64_t slice = elements / size();
  void* const own_slice = At(data, o_.member * slice * SizeOf(dtype));
  if (status.ok()) status = Scatter(data, own_slice, slice, dtype);
  if (status.ok()) status = Gather(own_slice, data, slice * SizeOf(dtype));
  return End(status, 2 * slice * SizeOf(dtype) * (size() - 1));
}

absl::Status ShmCommunicator::AllToAllV(const void* send,
                                        absl::Span<const Segment> sends,
                                        void* recv,
                                        absl::Span<const Segment> recvs,
                                        device::Stream&,
                                        const CollectiveTag& tag) {
  Begin(CollectiveKind::kAllToAllV, tag, 0);
  absl::Status status = error_;
  if (status.ok()) status = Named(CheckSegments(sends, size()));
  if (status.ok()) status = Named(CheckSegments(recvs, size()));
  if (status.ok()) status = Exchange(send, sends, recv, recvs);
  int64_t sent = 0;
  for (const Segment& segment : sends) {
    if (segment.peer != o_.member) sent += segment.bytes;
  }
  return End(status, sent);
}

absl::Status ShmCommunicator::Broadcast(void* data, int64_t bytes, int root,
                                        device::Stream&,
                                        const CollectiveTag& tag) {
  Begin(CollectiveKind::kBroadcast, tag, bytes, DType::kF32, root);
  const bool is_root = root == o_.member;
  absl::Status status = error_;
  if (status.ok()) status = Named(CheckBroadcast(bytes, root, size()));
  if (status.ok()) {
    status = Rounds(
        bytes, kWindowBytes,
        [&](int64_t at, int64_t n) {
          if (is_root) CopyBytes(own().window, At(data, at), n);
        },
        [&](int64_t at, int64_t n) {
          if (!is_root) CopyBytes(At(data, at), o_.boards[root]->window, n);
        });
  }
  return End(status, is_root ? bytes * (size() - 1) : 0);
}

absl::Status ShmCommunicator::Barrier(device::Stream&,
                                      const CollectiveTag& tag) {
  Begin(CollectiveKind::kBarrier, tag, 0);
  const auto nothing = [](int64_t, int64_t) {};
  return End(error_.ok() ? Rounds(0, kWindowBytes, nothing, nothing) : error_,
             0);
}

}  // namespace weft::comm::shm

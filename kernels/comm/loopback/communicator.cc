#include "kernels/comm/loopback/communicator.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/comm/bytes.h"
#include "kernels/comm/segments.h"

namespace weft::comm::loopback {
namespace {

int64_t BytesToOthers(absl::Span<const Segment> sends, int self) {
  int64_t bytes = 0;
  for (const Segment& segment : sends) {
    if (segment.peer != self) bytes += segment.bytes;
  }
  return bytes;
}

bool Matches(const Call& a, const Call& b) {
  return a.id.kind == b.id.kind && a.count == b.count && a.dtype == b.dtype &&
         a.root == b.root && a.id.tag.layer == b.id.tag.layer &&
         a.id.tag.microbatch == b.id.tag.microbatch &&
         std::strcmp(a.id.tag.op, b.id.tag.op) == 0;
}

std::string DescribeArguments(const Call& call) {
  switch (call.id.kind) {
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllReduce:
      return absl::StrCat(call.count, " elements of ", weft::Name(call.dtype));
    case CollectiveKind::kBroadcast:
      return absl::StrCat(call.count, " bytes from root ", call.root);
    case CollectiveKind::kAllGather:
      return absl::StrCat(call.count, " bytes");
    case CollectiveKind::kAllToAllV:
    case CollectiveKind::kBarrier:
      break;
  }
  return "no size";
}

}  // namespace

LoopbackCommunicator::LoopbackCommunicator(std::shared_ptr<Group> group,
                                           MemberOptions options)
    : group_(std::move(group)),
      options_(std::move(options)),
      sources_(group_->size()) {
  if (options_.cancellation != nullptr) {
    options_.cancellation->AddListener(this);
  }
}

LoopbackCommunicator::~LoopbackCommunicator() {
  if (options_.cancellation != nullptr) {
    options_.cancellation->RemoveListener(this);
  }
}

absl::Status LoopbackCommunicator::Reserve(int64_t) {
  return absl::OkStatus();  // nothing is staged
}

absl::Status LoopbackCommunicator::RegisterMemory(
    absl::Span<const device::Buffer* const> buffers) {
  registered_.assign(buffers.begin(), buffers.end());
  return absl::OkStatus();
}

absl::Status LoopbackCommunicator::CheckRegistered(const void* send) const {
  if (registered_.empty() || size() == 1) return absl::OkStatus();
  for (const device::Buffer* buffer : registered_) {
    const std::byte* const at = static_cast<const std::byte*>(send);
    if (at >= buffer->data() && at < buffer->data() + buffer->bytes()) {
      return absl::OkStatus();
    }
  }
  return absl::InvalidArgumentError(
      "what is sent lies in no registered memory");
}

Call LoopbackCommunicator::MakeCall(CollectiveKind kind,
                                    const CollectiveTag& tag) const {
  Call call;
  call.id = {kind, sequence_, tag};
  return call;
}

absl::Status LoopbackCommunicator::Refuse(const CollectiveId& id,
                                          const absl::Status& error) {
  const absl::Status named =
      Annotate(error, Describe(name(), id, group_->ranks()[options_.member]));
  group_->Break(options_.member, named);
  return named;
}

absl::Status LoopbackCommunicator::Exchange(const Call& call, Copy copy,
                                            int64_t wire_bytes) {
  if (options_.interceptor) {
    const absl::Status held = options_.interceptor(
        name(), call.id.tag, group_->ranks()[options_.member]);
    if (!held.ok()) return Refuse(call.id, held);
  }
  RETURN_IF_ERROR(group_->Arrive(options_.member, call, options_.deadline,
                                 options_.cancellation));
  absl::Status status = CheckSameCall(call);
  if (status.ok()) status = (this->*copy)(call);
  ++sequence_;
  RETURN_IF_ERROR(group_->Depart(options_.member, status));
  wire_bytes_.fetch_add(wire_bytes, std::memory_order_relaxed);
  return absl::OkStatus();
}

// All members look at all calls, so all find the same mismatch or none.
absl::Status LoopbackCommunicator::CheckSameCall(const Call& call) const {
  const Call& first = group_->call(0);
  for (int i = 1; i < size(); ++i) {
    const Call& other = group_->call(i);
    if (Matches(first, other)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "ranks disagree: ", Describe(name(), first.id, group_->ranks()[0]),
        " with ", DescribeArguments(first), ", but ",
        Describe(name(), other.id, group_->ranks()[i]), " with ",
        DescribeArguments(other)));
  }
  return absl::OkStatus();
}

absl::Status LoopbackCommunicator::AllGather(const void* send, void* recv,
                                             int64_t bytes, device::Stream&,
                                             const CollectiveTag& tag) {
  Call call = MakeCall(CollectiveKind::kAllGather, tag);
  const absl::Status valid = CheckBytes(bytes);
  if (!valid.ok()) return Refuse(call.id, valid);
  call.send = send;
  call.recv = recv;
  call.count = bytes;
  return Exchange(call, &LoopbackCommunicator::CopyAllGather,
                  bytes * (size() - 1));
}

absl::Status LoopbackCommunicator::CopyAllGather(const Call& call) {
  for (int i = 0; i < size(); ++i) {
    CopyBytes(At(call.recv, i * call.count), group_->call(i).send, call.count);
  }
  return absl::OkStatus();
}

absl::Status LoopbackCommunicator::ReduceScatter(const void* send, void* recv,
                                                 int64_t elements, DType dtype,
                                                 device::Stream&,
                                                 const CollectiveTag& tag) {
  Call call = MakeCall(CollectiveKind::kReduceScatter, tag);
  absl::Status valid = CheckSummable(dtype, elements);
  if (valid.ok() && elements > 0) valid = CheckRegistered(send);
  if (!valid.ok()) return Refuse(call.id, valid);
  call.send = send;
  call.recv = recv;
  call.count = elements;
  call.dtype = dtype;
  return Exchange(call, &LoopbackCommunicator::CopyReduceScatter,
                  elements * SizeOf(dtype) * (size() - 1));
}

void LoopbackCommunicator::SumOwnSlice(const Call& call, void* out) {
  const int64_t elements = call.id.kind == CollectiveKind::kAllReduce
                               ? call.count / size()
                               : call.count;
  const int64_t offset = options_.member * elements * SizeOf(call.dtype);
  for (int i = 0; i < size(); ++i) {
    sources_[i] = At(group_->call(i).send, offset);
  }
  SumInOrder(sources_, out, elements, call.dtype);
}

absl::Status LoopbackCommunicator::CopyReduceScatter(const Call& call) {
  SumOwnSlice(call, call.recv);
  return absl::OkStatus();
}

absl::Status LoopbackCommunicator::AllReduce(void* data, int64_t elements,
                                             DType dtype, device::Stream&,
                                             const CollectiveTag& tag) {
  Call call = MakeCall(CollectiveKind::kAllReduce, tag);
  absl::Status valid = CheckDivisible(dtype, elements, size());
  if (valid.ok() && elements > 0) valid = CheckRegistered(data);
  if (!valid.ok()) return Refuse(call.id, valid);
  call.send = data;
  call.recv = data;
  call.count = elements;
  call.dtype = dtype;
  return Exchange(call, &LoopbackCommunicator::CopyAllReduce,
                  2 * elements / size() * SizeOf(dtype) * (size() - 1));
}

absl::Status LoopbackCommunicator::CopyAllReduce(const Call& call) {
  const int64_t slice = call.count / size() * SizeOf(call.dtype);
  // Each member writes its own slice here, which no other reads yet.
  SumOwnSlice(call, At(call.recv, options_.member * slice));
  group_->Meet();
  for (int i = 0; i < size(); ++i) {
    CopyBytes(At(call.recv, i * slice), At(group_->call(i).send, i * slice),
              slice);
  }
  return absl::OkStatus();
}

absl::Status LoopbackCommunicator::AllToAllV(const void* send,
                                             absl::Span<const Segment> sends,
                                             void* recv,
                                             absl::Span<const Segment> recvs,
                                             device::Stream&,
                                             const CollectiveTag& tag) {
  Call call = MakeCall(CollectiveKind::kAllToAllV, tag);
  absl::Status valid = CheckSegments(sends, size());
  if (valid.ok()) valid = CheckSegments(recvs, size());
  if (valid.ok() && !sends.empty()) valid = CheckRegistered(send);
  if (!valid.ok()) return Refuse(call.id, valid);
  call.send = send;
  call.recv = recv;
  call.sends = sends;
  call.recvs = recvs;
  return Exchange(call, &LoopbackCommunicator::CopyAllToAllV,
                  BytesToOthers(sends, options_.member));
}

absl::Status LoopbackCommunicator::CopyAllToAllV(const Call& call) {
  for (int peer = 0; peer < size(); ++peer) {
    const Call& theirs = group_->call(peer);
    const absl::Status copied =
        CopySegments({theirs.send, theirs.sends, options_.member},
                     {call.recv, call.recvs, peer});
    if (copied.ok()) continue;
    return Annotate(
        copied, absl::StrCat(
                    Describe(name(), call.id, group_->ranks()[options_.member]),
                    ": from rank ", group_->ranks()[peer]));
  }
  return absl::OkStatus();
}

absl::Status LoopbackCommunicator::Broadcast(void* data, int64_t bytes,
                                             int root, device::Stream&,
                                             const CollectiveTag& tag) {
  Call call = MakeCall(CollectiveKind::kBroadcast, tag);
  const absl::Status valid = CheckBroadcast(bytes, root, size());
  if (!valid.ok()) return Refuse(call.id, valid);
  call.send = data;
  call.recv = data;
  call.count = bytes;
  call.root = root;
  return Exchange(call, &LoopbackCommunicator::CopyBroadcast,
                  root == options_.member ? bytes * (size() - 1) : 0);
}

absl::Status LoopbackCommunicator::CopyBroadcast(const Call& call) {
  CopyBytes(call.recv, group_->call(call.root).send, call.count);
  return absl::OkStatus();
}

absl::Status LoopbackCommunicator::Barrier(device::Stream&,
                                           const CollectiveTag& tag) {
  return Exchange(MakeCall(CollectiveKind::kBarrier, tag),
                  &LoopbackCommunicator::CopyNothing, 0);
}

absl::Status LoopbackCommunicator::CopyNothing(const Call&) {
  return absl::OkStatus();
}

}  // namespace weft::comm::loopback

#include "kernels/comm/ucx/ucx_communicator.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "kernels/comm/bytes.h"
#include "kernels/comm/segments.h"

namespace weft::comm::ucx {
namespace {

constexpr int kMessageBits = 17;
constexpr int kSenderBits = 12;
constexpr int kExchangeBits = 20;
constexpr int kKindBits = 3;
constexpr int64_t kMaxMessages = int64_t{1} << kMessageBits;

}  // namespace

UcxCommunicator::UcxCommunicator(std::shared_ptr<UcxLink> link,
                                 GroupOptions options)
    : link_(std::move(link)),
      options_(std::move(options)),
      sent_messages_(options_.ranks.size()),
      received_messages_(options_.ranks.size()),
      sources_(options_.ranks.size()) {}

absl::Status UcxCommunicator::Reserve(int64_t bytes) {
  RETURN_IF_ERROR(link_->status());
  RETURN_IF_ERROR(CheckBytes(bytes));
  if (size() == 1) return absl::OkStatus();
  return link_->Staging(bytes).status();
}

absl::Status UcxCommunicator::Start(CollectiveKind kind,
                                    const CollectiveTag& tag,
                                    Running* running) {
  running->id = {kind, sequence_++, tag};
  running->deadline = DeadlineAfter(link_->options().deadline);
  return link_->CheckUsable(name(), running->id);
}

absl::Status UcxCommunicator::Refuse(const Running& running,
                                     const absl::Status& error) {
  const absl::Status named = Annotate(
      error, Describe(name(), running.id, options_.ranks[options_.rank]));
  link_->Fail(named);
  return named;
}

void UcxCommunicator::BeginExchange(const Running& running, int64_t messages) {
  link_->worker().Begin(messages);
  std::fill(sent_messages_.begin(), sent_messages_.end(), 0);
  std::fill(received_messages_.begin(), received_messages_.end(), 0);
  const uint64_t exchange = exchange_++ % (uint64_t{1} << kExchangeBits);
  tag_prefix_ = static_cast<uint64_t>(options_.id);
  tag_prefix_ <<= kKindBits;
  tag_prefix_ |= static_cast<uint64_t>(running.id.kind);
  tag_prefix_ <<= kExchangeBits;
  tag_prefix_ |= exchange;
}

absl::Status UcxCommunicator::FinishExchange(const Running& running) {
  return link_->Finish(name(), running.id, running.deadline);
}

uint64_t UcxCommunicator::TagOf(int sender, int64_t index) const {
  return (tag_prefix_ << kSenderBits | static_cast<uint64_t>(sender))
             << kMessageBits |
         static_cast<uint64_t>(index);
}

void UcxCommunicator::Recv(int member, void* data, int64_t bytes) {
  int64_t& index = received_messages_[member];
  index += link_->PostRecv(options_.ranks[member], data, bytes,
                           TagOf(member, index));
}

void UcxCommunicator::Send(int member, const void* data, int64_t bytes) {
  int64_t& index = sent_messages_[member];
  index += link_->PostSend(options_.ranks[member], data, bytes,
                           TagOf(options_.rank, index));
  wire_bytes_.fetch_add(bytes, std::memory_order_relaxed);
}

absl::Status UcxCommunicator::AllGather(const void* send, void* recv,
                                        int64_t bytes, device::Stream&,
                                        const CollectiveTag& tag) {
  Running running;
  RETURN_IF_ERROR(Start(CollectiveKind::kAllGather, tag, &running));
  absl::Status valid = CheckBytes(bytes);
  if (valid.ok()) valid = CheckMessages(link_->CountMessages(bytes));
  if (!valid.ok()) return Refuse(running, valid);
  return GatherSlices(running, send, recv, bytes);
}

absl::Status UcxCommunicator::GatherSlices(const Running& running,
                                           const void* send, void* recv,
                                           int64_t bytes) {
  CopyBytes(At(recv, rank() * bytes), send, bytes);
  if (size() == 1 || bytes == 0) return absl::OkStatus();
  BeginExchange(running, 2 * (size() - 1) * link_->CountMessages(bytes));
  for (int i = 0; i < size(); ++i) {
    if (i != rank()) Recv(i, At(recv, i * bytes), bytes);
  }
  for (int i = 0; i < size(); ++i) {
    if (i != rank()) Send(i, send, bytes);
  }
  return FinishExchange(running);
}

absl::Status UcxCommunicator::ReduceScatter(const void* send, void* recv,
                                            int64_t elements, DType dtype,
                                            device::Stream&,
                                            const CollectiveTag& tag) {
  Running running;
  RETURN_IF_ERROR(Start(CollectiveKind::kReduceScatter, tag, &running));
  absl::Status valid = CheckSummable(dtype, elements);
  if (valid.ok()) valid = CheckSliceMessages(elements, dtype);
  if (!valid.ok()) return Refuse(running, valid);
  return ReduceSlices(running, send, recv, elements, dtype);
}

absl::Status UcxCommunicator::ReduceSlices(const Running& running,
                                           const void* send, void* recv,
                                           int64_t elements, DType dtype) {
  const int64_t bytes = elements * SizeOf(dtype);
  if (size() == 1) CopyBytes(recv, send, bytes);
  if (size() == 1 || bytes == 0) return absl::OkStatus();
  absl::StatusOr<std::byte*> staging = link_->Staging((size() - 1) * bytes);
  if (!staging.ok()) return Refuse(running, staging.status());

  BeginExchange(running, 2 * (size() - 1) * link_->CountMessages(bytes));
  std::byte* place = *staging;
  for (int i = 0; i < size(); ++i) {
    if (i == rank()) {
      sources_[i] = At(send, i * bytes);
      continue;
    }
    sources_[i] = place;
    Recv(i, place, bytes);
    place += bytes;
  }
  for (int i = 0; i < size(); ++i) {
    if (i != rank()) Send(i, At(send, i * bytes), bytes);
  }
  RETURN_IF_ERROR(FinishExchange(running));
  SumInOrder(sources_, recv, elements, dtype);
  return absl::OkStatus();
}

absl::Status UcxCommunicator::AllReduce(void* data, int64_t elements,
                                        DType dtype, device::Stream&,
                                        const CollectiveTag& tag) {
  Running running;
  RETURN_IF_ERROR(Start(CollectiveKind::kAllReduce, tag, &running));
  absl::Status valid = CheckDivisible(dtype, elements, size());
  if (valid.ok()) valid = CheckSliceMessages(elements / size(), dtype);
  if (!valid.ok()) return Refuse(running, valid);
  const int64_t slice = elements / size();
  void* const own = At(data, rank() * slice * SizeOf(dtype));
  RETURN_IF_ERROR(ReduceSlices(running, data, own, slice, dtype));
  return GatherSlices(running, own, data, slice * SizeOf(dtype));
}

absl::Status UcxCommunicator::CheckMessages(int64_t messages) {
  if (messages <= kMaxMessages) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(messages, " messages from one rank to another, of at most ",
                   link_->options().max_message_bytes, " bytes; at most ",
                   kMaxMessages, " can be told apart"));
}

absl::Status UcxCommunicator::CheckSliceMessages(int64_t elements,
                                                 DType dtype) {
  return CheckMessages(link_->CountMessages(elements * SizeOf(dtype)));
}

int64_t UcxCommunicator::CountMessages(
    absl::Span<const Segment> segments) const {
  int64_t messages = 0;
  for (const Segment& segment : segments) {
    messages += link_->CountMessages(segment.bytes);
  }
  return messages;
}

absl::Status UcxCommunicator::AllToAllV(const void* send,
                                        absl::Span<const Segment> sends,
                                        void* recv,
                                        absl::Span<const Segment> recvs,
                                        device::Stream&,
                                        const CollectiveTag& tag) {
  Running running;
  RETURN_IF_ERROR(Start(CollectiveKind::kAllToAllV, tag, &running));
  absl::Status valid = CheckSegments(sends, size());
  if (valid.ok()) valid = CheckSegments(recvs, size());
  if (!valid.ok()) return Refuse(running, valid);
  const int64_t sent_messages = CountMessages(sends);
  const int64_t received_messages = CountMessages(recvs);
  valid = CheckMessages(std::max(sent_messages, received_messages));
  if (valid.ok()) {
    valid = CopySegments({send, sends, rank()}, {recv, recvs, rank()});
  }
  if (!valid.ok()) return Refuse(running, valid);

  BeginExchange(running, sent_messages + received_messages);
  for (const Segment& s : recvs) {
    if (s.peer != rank() && s.bytes > 0) {
      Recv(s.peer, At(recv, s.offset), s.bytes);
    }
  }
  for (const Segment& s : sends) {
    if (s.peer != rank() && s.bytes > 0) {
      Send(s.peer, At(send, s.offset), s.bytes);
    }
  }
  return FinishExchange(running);
}

absl::Status UcxCommunicator::Broadcast(void* data, int64_t bytes, int root,
                                        device::Stream&,
                                        const CollectiveTag& tag) {
  Running running;
  RETURN_IF_ERROR(Start(CollectiveKind::kBroadcast, tag, &running));
  absl::Status valid = CheckBroadcast(bytes, root, size());
  if (valid.ok()) valid = CheckMessages(link_->CountMessages(bytes));
  if (!valid.ok()) return Refuse(running, valid);
  if (size() == 1 || bytes == 0) return absl::OkStatus();
  BeginExchange(running, (size() - 1) * link_->CountMessages(bytes));
  if (rank() != root) {
    Recv(root, data, bytes);
  } else {
    for (int i = 0; i < size(); ++i) {
      if (i != root) Send(i, data, bytes);
    }
  }
  return FinishExchange(running);
}

absl::Status UcxCommunicator::Barrier(device::Stream&,
                                      const CollectiveTag& tag) {
  Running running;
  RETURN_IF_ERROR(Start(CollectiveKind::kBarrier, tag, &running));
  if (size() == 1) return absl::OkStatus();
  BeginExchange(running, 2 * (size() - 1));
  for (int i = 0; i < size(); ++i) {
    if (i != rank()) Recv(i, nullptr, 0);
  }
  for (int i = 0; i < size(); ++i) {
    if (i != rank()) Send(i, nullptr, 0);
  }
  return FinishExchange(running);
}

}  // namespace weft::comm::ucx

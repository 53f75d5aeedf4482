#include "kernels/comm/ucx/ucx_worker.h"

#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/comm/ucx/ucx_error.h"

namespace weft::comm::ucx {
namespace {

using std::chrono::microseconds;
using std::chrono::nanoseconds;

// Progress calls that may find nothing before the thread goes to sleep. Few:
// ranks share cores, and the one waited for may need this one.
constexpr int kIdleRoundsBeforeSleep = 8;
// Progress calls after which the clock and the token are looked at anyway.
constexpr int kRoundsBetweenChecks = 256;
// UCX cannot sleep while a peer's queue is full, as nothing tells of room in
// it. The thread then lets others run, the peer above all, as often as this,
// and takes naps after that.
constexpr int kYieldsBeforeNap = 100;
constexpr microseconds kShortestNap{50};
constexpr microseconds kLongestNap{1000};

timespec ToTimespec(nanoseconds duration) {
  const int64_t nanos = std::max<int64_t>(duration.count(), 0);
  timespec spec = {};
  spec.tv_sec = nanos / 1000000000;
  spec.tv_nsec = nanos % 1000000000;
  return spec;
}

// Whether an endpoint's lanes include TCP. UCX 1.13 tells its lanes as text
// only.
bool UsesTcp(ucp_ep_h endpoint) {
  char* text = nullptr;
  size_t length = 0;
  std::FILE* const stream = ::open_memstream(&text, &length);
  if (stream == nullptr) return true;  // the safe answer
  ucp_ep_print_info(endpoint, stream);
  std::fclose(stream);
  const bool uses_tcp =
      absl::StrContains(absl::string_view(text, length), "tcp/");
  std::free(text);
  return uses_tcp;
}

// Blocks until one of the descriptors is readable or `timeout` has passed. A
// descriptor of -1 is none. Returns whether `event_fd` is readable.
absl::StatusOr<bool> PollFor(int event_fd, const Cancellation* cancellation,
                             nanoseconds timeout) {
  pollfd fds[2] = {{event_fd, POLLIN, 0}, {-1, POLLIN, 0}};
  if (cancellation != nullptr) fds[1].fd = cancellation->event_fd();
  // A day: a deadline that is never does not fit a timespec everywhere.
  const timespec spec =
      ToTimespec(std::min<nanoseconds>(timeout, std::chrono::hours(24)));
  if (::ppoll(fds, 2, &spec, nullptr) < 0) {
    if (errno == EINTR) return false;
    return absl::InternalError(
        absl::StrCat("ppoll failed (errno ", errno, ")"));
  }
  return fds[0].revents != 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<UcxWorker>> UcxWorker::Create(int rank,
                                                             int world) {
  ASSIGN_OR_RETURN(auto context, UcxContext::Create());
  auto worker =
      absl::WrapUnique(new UcxWorker(rank, world, std::move(context)));
  RETURN_IF_ERROR(worker->Start());
  return worker;
}

UcxWorker::UcxWorker(int rank, int world, std::unique_ptr<UcxContext> context)
    : rank_(rank),
      context_(std::move(context)),
      endpoints_(world, nullptr),
      is_over_tcp_(world, false) {}

UcxWorker::~UcxWorker() { Close(); }

absl::Status UcxWorker::Start() {
  ucp_worker_params_t params = {};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  // The thread that creates and connects it is not the stream's.
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  RETURN_IF_ERROR(
      ToStatus(ucp_worker_create(context_->get(), &params, &worker_),
               "ucp_worker_create"));
  RETURN_IF_ERROR(
      ToStatus(ucp_worker_get_efd(worker_, &event_fd_), "ucp_worker_get_efd"));
  ucp_address_t* address = nullptr;
  size_t length = 0;
  RETURN_IF_ERROR(ToStatus(ucp_worker_get_address(worker_, &address, &length),
                           "ucp_worker_get_address"));
  address_.assign(reinterpret_cast<const char*>(address), length);
  ucp_worker_release_address(worker_, address);
  return absl::OkStatus();
}

absl::Status UcxWorker::Connect(absl::Span<const std::string> addresses) {
  for (int peer = 0; peer < world(); ++peer) {
    if (peer == rank_) continue;
    ucp_ep_params_t params = {};
    // No error handling mode: with one, UCX gives up shared memory.
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
    params.address =
        reinterpret_cast<const ucp_address_t*>(addresses[peer].data());
    RETURN_IF_ERROR(
        ToStatus(ucp_ep_create(worker_, &params, &endpoints_[peer]),
                 absl::StrCat("rank ", rank_, " connecting to rank ", peer)));
    is_over_tcp_[peer] = UsesTcp(endpoints_[peer]);
  }
  is_connected_ = true;
  return absl::OkStatus();
}

void UcxWorker::Begin(int64_t messages) {
  const size_t needed = messages;
  if (messages_.size() < needed) {
    messages_.resize(needed);
    tickets_.resize(needed);
    for (size_t i = 0; i < needed; ++i) tickets_[i] = {this, i};
  }
  posted_ = 0;
  open_ = 0;
  failed_ = kNone;
}

Message& UcxWorker::AddMessage(Message::Kind kind, int peer, int64_t bytes) {
  Message& message = messages_[posted_++];
  message = Message();
  message.kind = kind;
  message.peer = peer;
  message.bytes = bytes;
  ++open_;
  return message;
}

void UcxWorker::Posted(Message& message, ucs_status_ptr_t request) {
  if (UCS_PTR_IS_PTR(request)) {
    message.request = request;
  } else {
    Finish(message, UCS_PTR_RAW_STATUS(request));
  }
}

void UcxWorker::Finish(Message& message, ucs_status_t status) {
  if (message.kind == Message::Kind::kRecv && status == UCS_OK &&
      static_cast<int64_t>(message.received.length) != message.bytes) {
    status = UCS_ERR_MESSAGE_TRUNCATED;  // UCX says it of longer ones only
  }
  message.is_done = true;
  message.status = status;
  --open_;
  if (status != UCS_OK && failed_ == kNone) {
    failed_ = &message - messages_.data();
  }
}

void UcxWorker::OnSent(void*, ucs_status_t status, void* user_data) {
  const auto& ticket = *static_cast<const Ticket*>(user_data);
  ticket.worker->Finish(ticket.worker->messages_[ticket.index], status);
}

void UcxWorker::OnReceived(void*, ucs_status_t status,
                           const ucp_tag_recv_info_t* info, void* user_data) {
  const auto& ticket = *static_cast<const Ticket*>(user_data);
  Message& message = ticket.worker->messages_[ticket.index];
  if (status == UCS_OK) message.received = *info;
  ticket.worker->Finish(message, status);
}

void UcxWorker::PostRecv(int peer, void* data, int64_t bytes, uint64_t tag) {
  Ticket& ticket = tickets_[posted_];
  Message& message = AddMessage(Message::Kind::kRecv, peer, bytes);
  ucp_request_param_t param = {};
  // Without the flag a message that is there already tells no size.
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                       UCP_OP_ATTR_FIELD_USER_DATA |
                       UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  param.cb.recv = &UcxWorker::OnReceived;
  param.user_data = &ticket;
  constexpr uint64_t kWholeTag = ~uint64_t{0};
  Posted(message,
         ucp_tag_recv_nbx(worker_, data, bytes, tag, kWholeTag, &param));
}

void UcxWorker::PostSend(int peer, const void* data, int64_t bytes,
                         uint64_t tag) {
  Ticket& ticket = tickets_[posted_];
  Message& message = AddMessage(Message::Kind::kSend, peer, bytes);
  ucp_request_param_t param = {};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.send = &UcxWorker::OnSent;
  param.user_data = &ticket;
  // Over TCP a plain send is done when UCX has taken the bytes. The last of
  // them may still lie in this process, and nobody would move them while the
  // thread computes. A synchronous one is done when the peer has the message.
  // (A flush does not do: it waits for a peer that may have gone on already.)
  const auto send =
      is_over_tcp_[peer] ? &ucp_tag_send_sync_nbx : &ucp_tag_send_nbx;
  Posted(message, send(endpoints_[peer], data, bytes, tag, &param));
}

WaitOutcome UcxWorker::Wait(TimePoint deadline,
                            const Cancellation* cancellation) {
  int idle_rounds = 0;
  for (int64_t round = 1;; ++round) {
    if (failed_ != kNone) return WaitOutcome::kFailed;
    if (open_ == 0) return WaitOutcome::kDone;
    idle_rounds = ucp_worker_progress(worker_) > 0 ? 0 : idle_rounds + 1;
    const bool is_idle = idle_rounds > kIdleRoundsBeforeSleep;
    if (!is_idle && round % kRoundsBetweenChecks != 0) continue;
    if (cancellation != nullptr && cancellation->cancelled()) {
      return WaitOutcome::kCancelled;
    }
    if (std::chrono::steady_clock::now() >= deadline) {
      return WaitOutcome::kDeadline;
    }
    if (!is_idle || open_ == 0) continue;
    sleep_error_ = Sleep(deadline, cancellation, idle_rounds);
    if (!sleep_error_.ok()) return WaitOutcome::kFailed;
  }
}

absl::Status UcxWorker::Sleep(TimePoint deadline,
                              const Cancellation* cancellation,
                              int idle_rounds) {
  const nanoseconds timeout = deadline - std::chrono::steady_clock::now();
  const int in_vain = idle_rounds - kIdleRoundsBeforeSleep - 2;
  const ucs_status_t armed = ucp_worker_arm(worker_);
  if (armed == UCS_OK) {
    ASSIGN_OR_RETURN(const bool is_news,
                     PollFor(event_fd_, cancellation, timeout));
    // While it connects by TCP, UCX calls out for no reason.
    if (!is_news || in_vain < kYieldsBeforeNap) return absl::OkStatus();
  } else if (armed != UCS_ERR_BUSY) {
    return ToStatus(armed, "ucp_worker_arm");
  }
  // Either there is news, which the next progress call finds, or sends wait for
  // room at a peer, of which UCX tells nothing.
  if (in_vain < 0) return absl::OkStatus();
  if (in_vain < kYieldsBeforeNap) {
    ::sched_yield();
    return absl::OkStatus();
  }
  const int naps = std::min(in_vain - kYieldsBeforeNap, 8);
  const microseconds nap = std::min(kShortestNap * (1 << naps), kLongestNap);
  return PollFor(-1, cancellation, std::min<nanoseconds>(timeout, nap))
      .status();
}

absl::Status UcxWorker::failure() const {
  if (failed_ == kNone) return sleep_error_;
  const Message& message = messages_[failed_];
  const bool is_recv = message.kind == Message::Kind::kRecv;
  if (is_recv && message.status == UCS_ERR_MESSAGE_TRUNCATED) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a message of ", message.bytes, " bytes was expected from rank ",
        message.peer, ", but ",
        message.received.length > 0 ? absl::StrCat(message.received.length)
                                    : std::string("other"),
        " bytes came"));
  }
  return ToStatus(message.status, absl::StrCat(message.bytes, " bytes ",
                                               is_recv ? "from" : "to",
                                               " rank ", message.peer));
}

std::vector<int> UcxWorker::MissingRanks() const {
  std::vector<int> missing;
  for (const bool wants_recvs : {true, false}) {
    for (size_t i = 0; i < posted_; ++i) {
      const Message& message = messages_[i];
      const bool is_recv = message.kind == Message::Kind::kRecv;
      if (!message.is_done && is_recv == wants_recvs) {
        missing.push_back(message.peer);
      }
    }
    if (!missing.empty()) break;
  }
  std::sort(missing.begin(), missing.end());
  missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
  return missing;
}

void UcxWorker::End() {
  for (size_t i = 0; i < posted_; ++i) {
    void*& request = messages_[i].request;
    if (request != nullptr) ucp_request_free(request);
    request = nullptr;
  }
  posted_ = 0;
}

void UcxWorker::Abandon() {
  if (is_abandoned_) return;
  is_abandoned_ = true;
  if (worker_ == nullptr) return;
  for (size_t i = 0; i < posted_; ++i) {
    const Message& message = messages_[i];
    if (message.request != nullptr && !message.is_done &&
        message.kind == Message::Kind::kRecv) {
      ucp_request_cancel(worker_, message.request);
    }
  }
  // The requests of open sends are freed with the worker.
  End();
}

void UcxWorker::Close() {
  if (worker_ != nullptr) {
    Abandon();
    ucp_worker_destroy(worker_);
    worker_ = nullptr;
  }
  context_.reset();
}

}  // namespace weft::comm::ucx

#include "kernels/comm/ucx/ucx_worker.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <utility>

#include "absl/memory/memory.h"
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
// UCX does not sleep while a peer's queue is full; these naps stand in for it.
constexpr microseconds kShortestNap{50};
constexpr microseconds kLongestNap{1000};

timespec ToTimespec(nanoseconds duration) {
  const int64_t nanos = std::max<int64_t>(duration.count(), 0);
  timespec spec = {};
  spec.tv_sec = nanos / 1000000000;
  spec.tv_nsec = nanos % 1000000000;
  return spec;
}

// Blocks until one of the descriptors is readable or `timeout` has passed.
absl::Status PollFor(int event_fd, const Cancellation* cancellation,
                     nanoseconds timeout) {
  pollfd fds[2] = {{event_fd, POLLIN, 0}, {-1, POLLIN, 0}};
  if (cancellation != nullptr) fds[1].fd = cancellation->event_fd();
  // A day: a deadline that is never does not fit a timespec everywhere.
  const timespec spec =
      ToTimespec(std::min<nanoseconds>(timeout, std::chrono::hours(24)));
  if (::ppoll(fds, 2, &spec, nullptr) < 0 && errno != EINTR) {
    return absl::InternalError(
        absl::StrCat("ppoll failed (errno ", errno, ")"));
  }
  return absl::OkStatus();
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
      has_sends_(world, false) {}

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
  }
  is_connected_ = true;
  return absl::OkStatus();
}

void UcxWorker::Begin(int64_t messages) {
  // Flushes come on top, one per rank at most.
  const size_t needed = messages + endpoints_.size();
  if (messages_.size() < needed) {
    messages_.resize(needed);
    tickets_.resize(needed);
    for (size_t i = 0; i < needed; ++i) tickets_[i] = {this, i};
  }
  posted_ = 0;
  open_ = 0;
  failed_ = kNone;
  std::fill(has_sends_.begin(), has_sends_.end(), false);
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
  has_sends_[peer] = true;
  ucp_request_param_t param = {};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.send = &UcxWorker::OnSent;
  param.user_data = &ticket;
  Posted(message, ucp_tag_send_nbx(endpoints_[peer], data, bytes, tag, &param));
}

// A send is done when UCX has taken the bytes; over TCP the last of them may
// still lie in this process, and nobody would move them while the thread
// computes. Over shared memory a flush is done at once.
void UcxWorker::PostFlushes() {
  for (size_t peer = 0; peer < endpoints_.size(); ++peer) {
    if (!has_sends_[peer]) continue;
    Ticket& ticket = tickets_[posted_];
    Message& message =
        AddMessage(Message::Kind::kFlush, static_cast<int>(peer), 0);
    ucp_request_param_t param = {};
    param.op_attr_mask =
        UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    param.cb.send = &UcxWorker::OnSent;
    param.user_data = &ticket;
    Posted(message, ucp_ep_flush_nbx(endpoints_[peer], &param));
  }
}

WaitOutcome UcxWorker::Wait(TimePoint deadline,
                            const Cancellation* cancellation) {
  WaitOutcome outcome = WaitForMessages(deadline, cancellation);
  if (outcome != WaitOutcome::kDone) return outcome;
  PostFlushes();
  return WaitForMessages(deadline, cancellation);
}

WaitOutcome UcxWorker::WaitForMessages(TimePoint deadline,
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
  nanoseconds timeout = deadline - std::chrono::steady_clock::now();
  const ucs_status_t armed = ucp_worker_arm(worker_);
  if (armed == UCS_ERR_BUSY) {
    // Either there is news, which the next progress call finds, or sends wait
    // for room at a peer, of which UCX tells nothing.
    const int naps = idle_rounds - kIdleRoundsBeforeSleep - 2;
    if (naps < 0) return absl::OkStatus();
    const microseconds nap =
        std::min(kShortestNap * (1 << std::min(naps, 8)), kLongestNap);
    timeout = std::min<nanoseconds>(timeout, nap);
  } else {
    RETURN_IF_ERROR(ToStatus(armed, "ucp_worker_arm"));
  }
  return PollFor(event_fd_, cancellation, timeout);
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

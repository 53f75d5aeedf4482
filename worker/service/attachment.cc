#include "worker/service/attachment.h"

#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "base/status_macros.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"

namespace weft::service {
namespace {

using ::weft::worker::v1::AttachRequest;
using ::weft::worker::v1::AttachResponse;

constexpr int kProtocolVersion = 1;
constexpr absl::Duration kDefaultHeartbeatInterval = absl::Seconds(1);
// Programs of deep models are larger than the default of 4 MiB.
constexpr int kMaxMessageBytes = 64 << 20;

std::shared_ptr<grpc::Channel> Connect(const std::string& coordinator) {
  grpc::ChannelArguments args;
  args.SetMaxReceiveMessageSize(kMaxMessageBytes);
  // Finds a coordinator whose host has gone without a word.
  args.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 20'000);
  args.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  args.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // Our own backoff decides when to try. Channels to one address would share a
  // connection, and with it how long to wait after it failed.
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return grpc::CreateCustomChannel(coordinator,
                                   grpc::InsecureChannelCredentials(), args);
}

absl::Status ToAbsl(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                      status.error_message());
}

// Whether attaching again would not help.
bool IsFinal(const absl::Status& status) {
  return absl::IsFailedPrecondition(status) || absl::IsInvalidArgument(status);
}

}  // namespace

// One stream, on a channel of its own: a channel that has failed to connect
// fails its calls until its own backoff is over. The reader fills in the
// answer, then lets the writer go on.
struct Attachment::Connection {
  std::unique_ptr<worker::v1::WorkerControlService::Stub> stub;
  grpc::ClientContext context;
  std::unique_ptr<Stream> stream;
  Notification answered;
  // Set before `answered`; zero when the worker was not accepted.
  absl::Duration heartbeat_interval;
};

Attachment::Attachment(Options options)
    : options_(std::move(options)),
      identity_(options_.identity),
      backoff_(options_.backoff, options_.identity.incarnation()) {
  identity_.set_min_protocol_version(kProtocolVersion);
  identity_.set_max_protocol_version(kProtocolVersion);
}

absl::Status Attachment::Run() {
  absl::Status status;
  while (!IsShutDown()) {
    status = AttachOnce();
    if (IsShutDown() || IsFinal(status)) break;
    const absl::Duration delay = backoff_.Next();
    LOG(WARNING) << "coordinator=" << options_.coordinator
                 << " detached reason=" << LogValue(status.ToString())
                 << " retry_in=" << absl::FormatDuration(delay);
    Pause(delay);
  }
  MutexLock lock(&mu_);
  has_returned_ = true;
  changed_.SignalAll();
  return is_shut_down_ ? absl::OkStatus() : status;
}

absl::Status Attachment::AttachOnce() {
  Connection connection;
  {
    MutexLock lock(&mu_);
    if (is_shut_down_) return absl::CancelledError("shut down");
    context_ = &connection.context;
  }
  connection.stub =
      worker::v1::WorkerControlService::NewStub(Connect(options_.coordinator));
  connection.stream = connection.stub->Attach(&connection.context);
  std::thread writer([&] { WriteAll(connection); });
  const absl::Status read = ReadAll(connection);
  options_.outbox->Close();
  if (!connection.answered.HasBeenNotified()) connection.answered.Notify();
  if (!read.ok()) connection.context.TryCancel();
  writer.join();
  const absl::Status finished = ToAbsl(connection.stream->Finish());
  {
    MutexLock lock(&mu_);
    context_ = nullptr;
    is_registered_ = false;
  }
  absl::Status why = !read.ok() ? read : finished;
  if (why.ok())
    why = absl::UnavailableError("the coordinator ended the stream");
  options_.handler->OnDetached(why);
  return why;
}

absl::Status Attachment::ReadAll(Connection& connection) {
  AttachRequest hello;
  *hello.mutable_register_() = identity_;
  AttachResponse message;
  // When the stream is broken, Finish() tells why.
  if (!connection.stream->Write(hello) || !connection.stream->Read(&message)) {
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(CheckRegistered(message));
  {
    MutexLock lock(&mu_);
    if (is_shut_down_) return absl::CancelledError("shut down");
    is_registered_ = true;
    options_.outbox->Open();
  }
  const int interval_ms = message.registered().heartbeat_interval_ms();
  connection.heartbeat_interval = interval_ms > 0
                                      ? absl::Milliseconds(interval_ms)
                                      : kDefaultHeartbeatInterval;
  connection.answered.Notify();
  backoff_.Reset();
  identity_.set_worker_id(message.registered().worker_id());
  LOG(INFO) << "worker=" << identity_.worker_id()
            << " attached coordinator=" << options_.coordinator
            << " heartbeat=" << connection.heartbeat_interval;
  options_.handler->OnAttached(identity_.worker_id());
  while (connection.stream->Read(&message)) {
    options_.handler->OnMessage(message);
  }
  return absl::OkStatus();
}

absl::Status Attachment::CheckRegistered(const AttachResponse& answer) {
  if (!answer.has_registered()) {
    return absl::InternalError(
        absl::StrCat("the coordinator answered Register with message case ",
                     answer.message_case()));
  }
  if (answer.registered().protocol_version() != kProtocolVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("the coordinator chose protocol version ",
                     answer.registered().protocol_version(),
                     "; this worker speaks ", kProtocolVersion));
  }
  return absl::OkStatus();
}

void Attachment::WriteAll(Connection& connection) {
  if (!connection.answered.WaitForNotificationWithTimeout(
          options_.register_timeout)) {
    connection.context.TryCancel();
    return;
  }
  const absl::Duration interval = connection.heartbeat_interval;
  if (interval == absl::ZeroDuration()) return;
  auto next_heartbeat = std::chrono::steady_clock::now();
  while (true) {
    AttachRequest message;
    Outbox::Event event = Outbox::Event::kTimeout;
    // A flow of messages must not starve the heartbeat.
    if (std::chrono::steady_clock::now() < next_heartbeat) {
      event = options_.outbox->Pop(next_heartbeat, &message);
    }
    if (event == Outbox::Event::kClosed) {
      connection.stream->WritesDone();
      return;
    }
    if (event == Outbox::Event::kTimeout) {
      *message.mutable_heartbeat()->mutable_figures() = options_.figures();
      next_heartbeat = DeadlineAfter(interval);
    }
    if (!connection.stream->Write(message)) {
      options_.outbox->Close();
      return;
    }
  }
}

void Attachment::Shutdown(absl::Duration patience) {
  const auto deadline = DeadlineAfter(patience);
  MutexLock lock(&mu_);
  is_shut_down_ = true;
  changed_.SignalAll();
  options_.outbox->Drain();
  if (!is_registered_ && context_ != nullptr) context_->TryCancel();
  while (!has_returned_) {
    if (changed_.WaitUntil(&mu_, deadline)) continue;
    if (context_ != nullptr) context_->TryCancel();
    return;
  }
}

void Attachment::Pause(absl::Duration delay) {
  const auto deadline = DeadlineAfter(delay);
  MutexLock lock(&mu_);
  while (!is_shut_down_) {
    if (!changed_.WaitUntil(&mu_, deadline)) return;
  }
}

bool Attachment::IsShutDown() const {
  MutexLock lock(&mu_);
  return is_shut_down_;
}

}  // namespace weft::service

#include "worker/service/attachment.h"

#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "gtest/gtest.h"

namespace weft::service {
namespace {

using ::testing::HasSubstr;
using ::weft::worker::v1::AttachRequest;
using ::weft::worker::v1::AttachResponse;
using ::weft::worker::v1::WorkerControlService;

constexpr absl::Duration kLong = absl::Seconds(30);

// A queue that a test takes from, with a deadline.
template <typename T>
class Inbox {
 public:
  void Put(T item) {
    MutexLock lock(&mu_);
    items_.push_back(std::move(item));
    changed_.SignalAll();
    ++put_;
  }
  // All that came so far.
  int put() const {
    MutexLock lock(&mu_);
    return put_;
  }
  bool Take(T* item) {
    const auto deadline = DeadlineAfter(kLong);
    MutexLock lock(&mu_);
    while (items_.empty()) {
      if (!changed_.WaitUntil(&mu_, deadline)) return false;
    }
    *item = std::move(items_.front());
    items_.pop_front();
    return true;
  }

 private:
  mutable Mutex mu_;
  CondVar changed_;
  std::deque<T> items_ ABSL_GUARDED_BY(mu_);
  int put_ ABSL_GUARDED_BY(mu_) = 0;
};

// A coordinator that answers Register as told and puts all it hears into a box.
class FakeCoordinator final : public WorkerControlService::Service {
 public:
  using Stream = grpc::ServerReaderWriter<AttachResponse, AttachRequest>;

  explicit FakeCoordinator(int port = 0) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(absl::StrCat("127.0.0.1:", port),
                             grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~FakeCoordinator() override {
    server_->Shutdown(std::chrono::system_clock::now());
  }

  int port() const { return port_; }

  grpc::Status Attach(grpc::ServerContext* context, Stream* stream) override {
    AttachRequest message;
    if (!stream->Read(&message)) return grpc::Status::OK;
    heard.Put(message);
    if (!refusal.ok()) return refusal;
    if (is_silent) {
      while (stream->Read(&message)) {
      }
      return grpc::Status::OK;
    }
    AttachResponse answer;
    answer.mutable_registered()->set_worker_id("w-1");
    answer.mutable_registered()->set_protocol_version(protocol_version);
    answer.mutable_registered()->set_heartbeat_interval_ms(10);
    stream->Write(answer);
    for (const AttachResponse& says : to_say) stream->Write(says);
    while (stream->Read(&message)) {
      if (message.has_heartbeat() && !wants_heartbeats) continue;
      heard.Put(message);
    }
    return grpc::Status::OK;
  }

  // Set before the worker attaches.
  grpc::Status refusal;
  bool is_silent = false;
  bool wants_heartbeats = false;
  int protocol_version = 1;
  std::vector<AttachResponse> to_say;

  Inbox<AttachRequest> heard;

 private:
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

class RecordingHandler : public AttachmentHandler {
 public:
  void OnAttached(const std::string& worker_id) override {
    attached.Put(worker_id);
  }
  void OnMessage(const AttachResponse& message) override {
    messages.Put(message);
  }
  void OnDetached(const absl::Status& why) override { detached.Put(why); }

  Inbox<std::string> attached;
  Inbox<AttachResponse> messages;
  Inbox<absl::Status> detached;
};

class AttachmentTest : public testing::Test {
 protected:
  void Attach(int port) {
    Attachment::Options options;
    options.coordinator = absl::StrCat("127.0.0.1:", port);
    options.identity.set_worker_id(worker_id_);
    options.identity.set_incarnation(77);
    options.identity.set_pid(123);
    options.outbox = &outbox_;
    options.handler = &handler_;
    options.figures = [] {
      v1::ProcessFigures figures;
      figures.set_threads(5);
      return figures;
    };
    options.backoff = backoff_;
    options.register_timeout = register_timeout_;
    attachment_ = std::make_unique<Attachment>(std::move(options));
    thread_ = std::thread([this] { result_ = attachment_->Run(); });
  }
  absl::Status Join() {
    thread_.join();
    return result_;
  }
  void TearDown() override {
    if (!thread_.joinable()) return;
    attachment_->Shutdown(kLong);
    EXPECT_OK(Join());
  }

  std::string worker_id_;
  absl::Duration register_timeout_ = kLong;
  Backoff::Options backoff_ = {absl::Milliseconds(5), absl::Milliseconds(20)};
  Outbox outbox_;
  RecordingHandler handler_;
  std::unique_ptr<Attachment> attachment_;
  std::thread thread_;
  absl::Status result_;
};

AttachResponse StopMessage(const std::string& reason) {
  AttachResponse message;
  message.mutable_stop()->set_reason(reason);
  return message;
}

TEST_F(AttachmentTest, RegistersAndHandsOnWhatComes) {
  FakeCoordinator coordinator;
  coordinator.to_say = {StopMessage("a"), StopMessage("b")};
  Attach(coordinator.port());
  AttachRequest hello;
  ASSERT_TRUE(coordinator.heard.Take(&hello));
  EXPECT_EQ(hello.register_().incarnation(), 77);
  EXPECT_EQ(hello.register_().min_protocol_version(), 1);
  EXPECT_EQ(hello.register_().max_protocol_version(), 1);
  EXPECT_EQ(hello.register_().pid(), 123);
  std::string worker_id;
  ASSERT_TRUE(handler_.attached.Take(&worker_id));
  EXPECT_EQ(worker_id, "w-1");
  for (const char* reason : {"a", "b"}) {
    AttachResponse message;
    ASSERT_TRUE(handler_.messages.Take(&message));
    EXPECT_EQ(message.stop().reason(), reason);
  }
}

TEST_F(AttachmentTest, SendsHeartbeatsWithFigures) {
  FakeCoordinator coordinator;
  coordinator.wants_heartbeats = true;
  Attach(coordinator.port());
  AttachRequest message;
  ASSERT_TRUE(coordinator.heard.Take(&message));
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(coordinator.heard.Take(&message));
    EXPECT_EQ(message.heartbeat().figures().threads(), 5);
  }
}

TEST_F(AttachmentTest, MessagesGoOutInOrderAndShutdownLetsThemOut) {
  FakeCoordinator coordinator;
  coordinator.to_say = {StopMessage("attached")};
  Attach(coordinator.port());
  AttachResponse attached;
  ASSERT_TRUE(handler_.messages.Take(&attached));
  for (int step = 1; step <= 100; ++step) {
    AttachRequest message;
    message.mutable_step_report()->mutable_metrics()->set_step(step);
    outbox_.Send(message);
  }
  attachment_->Shutdown(kLong);
  EXPECT_OK(Join());
  AttachRequest message;
  ASSERT_TRUE(coordinator.heard.Take(&message));
  for (int step = 1; step <= 100; ++step) {
    ASSERT_TRUE(coordinator.heard.Take(&message));
    EXPECT_EQ(message.step_report().metrics().step(), step);
  }
}

TEST_F(AttachmentTest, ComesBackWithTheSameIncarnationAndTheIdItWasGiven) {
  auto coordinator = std::make_unique<FakeCoordinator>();
  const int port = coordinator->port();
  coordinator->to_say = {StopMessage("attached")};
  Attach(port);
  AttachRequest hello;
  ASSERT_TRUE(coordinator->heard.Take(&hello));
  EXPECT_EQ(hello.register_().worker_id(), "");
  AttachResponse attached;
  ASSERT_TRUE(handler_.messages.Take(&attached));
  coordinator.reset();
  absl::Status why;
  ASSERT_TRUE(handler_.detached.Take(&why));
  EXPECT_FALSE(why.ok());

  coordinator = std::make_unique<FakeCoordinator>(port);
  ASSERT_EQ(coordinator->port(), port);
  ASSERT_TRUE(coordinator->heard.Take(&hello));
  EXPECT_EQ(hello.register_().worker_id(), "w-1");
  EXPECT_EQ(hello.register_().incarnation(), 77);
  attachment_->Shutdown(kLong);
  EXPECT_OK(Join());
}

TEST_F(AttachmentTest, ComesBackAtTheNextAttemptOnceTheCoordinatorIsBack) {
  auto coordinator = std::make_unique<FakeCoordinator>();
  const int port = coordinator->port();
  backoff_ = {absl::Milliseconds(1), absl::Milliseconds(1)};
  Attach(port);
  AttachRequest hello;
  ASSERT_TRUE(coordinator->heard.Take(&hello));
  coordinator.reset();
  for (int attempt = 0; attempt < 50; ++attempt) {
    absl::Status why;
    ASSERT_TRUE(handler_.detached.Take(&why));
  }
  coordinator = std::make_unique<FakeCoordinator>(port);
  ASSERT_EQ(coordinator->port(), port);
  const int before = handler_.detached.put();
  ASSERT_TRUE(coordinator->heard.Take(&hello));
  // One attempt may have been on its way when the coordinator came back.
  EXPECT_LE(handler_.detached.put() - before, 2);
  attachment_->Shutdown(kLong);
  EXPECT_OK(Join());
}

TEST_F(AttachmentTest, GivesUpWhenTheCoordinatorRefusesItsIdentity) {
  FakeCoordinator coordinator;
  coordinator.refusal =
      grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "worker_id=\"a b\"");
  Attach(coordinator.port());
  EXPECT_THAT(Join(), StatusIs(absl::StatusCode::kInvalidArgument,
                               HasSubstr("worker_id")));
}

TEST_F(AttachmentTest, GivesUpWhenNoProtocolVersionIsShared) {
  FakeCoordinator coordinator;
  coordinator.refusal =
      grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "speaks 2 to 3");
  Attach(coordinator.port());
  EXPECT_THAT(Join(), StatusIs(absl::StatusCode::kFailedPrecondition,
                               HasSubstr("speaks 2 to 3")));
}

TEST_F(AttachmentTest, GivesUpWhenTheCoordinatorChoosesAnotherVersion) {
  FakeCoordinator coordinator;
  coordinator.protocol_version = 2;
  Attach(coordinator.port());
  EXPECT_THAT(Join(), StatusIs(absl::StatusCode::kFailedPrecondition,
                               HasSubstr("protocol version 2")));
}

TEST_F(AttachmentTest, TriesAgainWhileAnotherIncarnationHoldsTheId) {
  FakeCoordinator coordinator;
  coordinator.refusal =
      grpc::Status(grpc::StatusCode::ALREADY_EXISTS, "w-1 is taken");
  worker_id_ = "w-1";
  Attach(coordinator.port());
  for (int attempt = 0; attempt < 3; ++attempt) {
    AttachRequest hello;
    ASSERT_TRUE(coordinator.heard.Take(&hello));
    absl::Status why;
    ASSERT_TRUE(handler_.detached.Take(&why));
    EXPECT_THAT(why, StatusIs(absl::StatusCode::kAlreadyExists));
  }
}

TEST_F(AttachmentTest, TriesAgainWhenRegisterIsNotAnswered) {
  FakeCoordinator coordinator;
  coordinator.is_silent = true;
  register_timeout_ = absl::Milliseconds(10);
  Attach(coordinator.port());
  for (int attempt = 0; attempt < 2; ++attempt) {
    AttachRequest hello;
    ASSERT_TRUE(coordinator.heard.Take(&hello));
  }
}

TEST_F(AttachmentTest, ShutsDownWithoutACoordinator) {
  int port = 0;
  { port = FakeCoordinator().port(); }
  Attach(port);
  absl::Status why;
  ASSERT_TRUE(handler_.detached.Take(&why));
  attachment_->Shutdown(kLong);
  EXPECT_OK(Join());
}

}  // namespace
}  // namespace weft::service

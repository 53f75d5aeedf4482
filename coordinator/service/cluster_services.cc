#include "coordinator/service/cluster_services.h"

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "coordinator/core/dispatcher.h"
#include "coordinator/core/heap.h"
#include "coordinator/core/membership.h"
#include "coordinator/core/worker_link.h"
#include "coordinator/service/status.h"
#include "weft/v1/cluster_service.grpc.pb.h"
#include "weft/worker/v1/worker_control_service.grpc.pb.h"

namespace weft::coordinator {
namespace {

using grpc::CallbackServerContext;
using worker::v1::AttachRequest;
using worker::v1::AttachResponse;
using AttachStream = grpc::ServerBidiReactor<AttachRequest, AttachResponse>;

// Messages that may wait for a worker that does not read.
constexpr size_t kMaxQueued = 1024;

// Writes to a stream, one message at a time. Outlives its stream: what is sent
// later goes nowhere.
class StreamLink : public WorkerLink {
 public:
  explicit StreamLink(AttachStream* stream) : stream_(stream) {}

  void Send(AttachResponse message) override {
    MutexLock lock(&mu_);
    if (stream_ == nullptr || is_closing_) return;
    if (queue_.size() >= kMaxQueued) {
      CloseLocked(absl::ResourceExhaustedError("the worker does not read"));
      return;
    }
    queue_.push_back(std::move(message));
    AdvanceLocked();
  }

  void Close(absl::Status reason) override {
    MutexLock lock(&mu_);
    CloseLocked(std::move(reason));
  }

  void OnWriteDone(bool ok) {
    MutexLock lock(&mu_);
    is_writing_ = false;
    const int64_t plan_ops = queue_.front().prepare().train().ops_size();
    queue_.pop_front();
    TrimHeapAfterPlan(plan_ops);
    if (!ok) {
      queue_.clear();
      CloseLocked(absl::CancelledError("the worker went away"));
    }
    AdvanceLocked();
  }

  // The stream is done.
  void Unbind() {
    MutexLock lock(&mu_);
    stream_ = nullptr;
  }

 private:
  void CloseLocked(absl::Status reason) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (is_closing_) return;
    is_closing_ = true;
    reason_ = std::move(reason);
    AdvanceLocked();
  }

  void AdvanceLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (stream_ == nullptr || is_writing_ || is_finished_) return;
    if (!queue_.empty()) {
      is_writing_ = true;
      stream_->StartWrite(&queue_.front());
    } else if (is_closing_) {
      is_finished_ = true;
      stream_->Finish(ToGrpc(reason_));
    }
  }

  Mutex mu_;
  AttachStream* stream_ ABSL_GUARDED_BY(mu_);
  // The front is being written while is_writing_.
  std::deque<AttachResponse> queue_ ABSL_GUARDED_BY(mu_);
  bool is_writing_ ABSL_GUARDED_BY(mu_) = false;
  bool is_closing_ ABSL_GUARDED_BY(mu_) = false;
  bool is_finished_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status reason_ ABSL_GUARDED_BY(mu_);
};

// One worker's stream.
class AttachReactor : public AttachStream {
 public:
  AttachReactor(Dispatcher& dispatcher, absl::Duration register_timeout,
                CallbackServerContext* context)
      : dispatcher_(dispatcher),
        context_(*context),
        link_(std::make_shared<StreamLink>(this)) {
    register_deadline_.Set(
        absl::ToChronoTime(absl::Now() + register_timeout),
        [link = link_, register_timeout](bool has_passed) {
          if (!has_passed) return;
          link->Close(absl::DeadlineExceededError(absl::StrCat(
              "no Register within ", absl::FormatDuration(register_timeout))));
        });
    StartRead(&request_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      if (session_.has_value()) {
        has_left_ = dispatcher_.OnDetached(
            *session_, context_.IsCancelled() ? "its connection broke"
                                              : "it ended its stream");
      }
      // A message that does not parse ends the reads as well.
      link_->Close(session_.has_value()
                       ? absl::OkStatus()
                       : absl::InvalidArgumentError(
                             "the stream ended, or its first message could "
                             "not be read, before Register"));
      return;
    }
    if (session_.has_value()) {
      dispatcher_.OnMessage(*session_, request_);
    } else if (absl::Status status = Register(); !status.ok()) {
      link_->Close(std::move(status));
      return;
    }
    StartRead(&request_);
  }

  void OnWriteDone(bool ok) override { link_->OnWriteDone(ok); }
  // A read is always under way until the link is closed, and fails now.
  void OnCancel() override {}

  void OnDone() override {
    // Whether the connection broke is certain only now.
    if (has_left_ && !context_.IsCancelled()) dispatcher_.OnLeft(*session_);
    link_->Unbind();
    delete this;
  }

 private:
  absl::Status Register() {
    if (!request_.has_register_()) {
      return absl::InvalidArgumentError(
          "the first message of a stream must be Register");
    }
    register_deadline_.Cancel();
    absl::StatusOr<SessionId> session =
        dispatcher_.Attach(request_.register_(), link_);
    if (session.ok()) session_ = *session;
    return session.status();
  }

  Dispatcher& dispatcher_;
  CallbackServerContext& context_;
  const std::shared_ptr<StreamLink> link_;  // the dispatcher holds it too
  AttachRequest request_;
  std::optional<SessionId> session_;  // once registered
  bool has_left_ = false;             // its reads ended while it was attached
  grpc::Alarm register_deadline_;
};

class WorkerControlServiceImpl final
    : public worker::v1::WorkerControlService::CallbackService {
 public:
  WorkerControlServiceImpl(Dispatcher* dispatcher,
                           absl::Duration register_timeout)
      : dispatcher_(*dispatcher), register_timeout_(register_timeout) {}

  AttachStream* Attach(CallbackServerContext* context) override {
    return new AttachReactor(dispatcher_, register_timeout_, context);
  }

 private:
  Dispatcher& dispatcher_;
  const absl::Duration register_timeout_;
};

class ClusterServiceImpl final : public v1::ClusterService::CallbackService {
 public:
  ClusterServiceImpl(Dispatcher* dispatcher, CoordinatorIdentity identity)
      : dispatcher_(*dispatcher), identity_(std::move(identity)) {}

  grpc::ServerUnaryReactor* ListWorkers(
      CallbackServerContext* context, const v1::ListWorkersRequest* request,
      v1::ListWorkersResponse* response) override {
    for (v1::Worker& worker : dispatcher_.ListWorkers()) {
      *response->add_workers() = std::move(worker);
    }
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  grpc::ServerUnaryReactor* GetClusterInfo(
      CallbackServerContext* context, const v1::GetClusterInfoRequest* request,
      v1::GetClusterInfoResponse* response) override {
    *response = dispatcher_.ClusterInfo();
    response->set_version(identity_.version);
    response->set_http_address(identity_.http_address);
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

 private:
  Dispatcher& dispatcher_;
  const CoordinatorIdentity identity_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeClusterService(
    Dispatcher* dispatcher, const CoordinatorIdentity& identity) {
  return std::make_unique<ClusterServiceImpl>(dispatcher, identity);
}

std::unique_ptr<grpc::Service> MakeWorkerControlService(
    Dispatcher* dispatcher, absl::Duration register_timeout) {
  return std::make_unique<WorkerControlServiceImpl>(dispatcher,
                                                    register_timeout);
}

}  // namespace weft::coordinator

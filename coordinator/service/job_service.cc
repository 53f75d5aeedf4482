#include "coordinator/service/job_service.h"

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "coordinator/core/admission.h"
#include "coordinator/core/dispatcher.h"
#include "coordinator/core/plan_compiler.h"
#include "coordinator/core/watch_hub.h"
#include "coordinator/service/status.h"
#include "coordinator/service/task_threads.h"
#include "schedule/rules/validate.h"
#include "weft/v1/job_service.grpc.pb.h"
#include "weft/v1/job_service.pb.h"

namespace weft::coordinator {
namespace {

using grpc::CallbackServerContext;
using grpc::ServerUnaryReactor;

// Streams one watch: pulls a message, writes it, pulls the next when that is
// done. So a client that reads slowly holds one message here and no more.
class WatchReactor : public grpc::ServerWriteReactor<v1::WatchJobResponse> {
 public:
  WatchReactor(Dispatcher& dispatcher, const v1::WatchJobRequest& request)
      : handle_(std::make_shared<Handle>()) {
    MutexLock lock(&handle_->mu);
    absl::StatusOr<std::unique_ptr<Watch>> watch = dispatcher.OpenWatch(
        request.job_id(), request.after_revision(), [handle = handle_] {
          MutexLock lock(&handle->mu);
          if (handle->reactor != nullptr) handle->reactor->PumpLocked();
        });
    handle_->reactor = this;
    if (!watch.ok()) {
      FinishLocked(watch.status());
      return;
    }
    watch_ = *std::move(watch);
    PumpLocked();
  }

  void OnWriteDone(bool ok) override {
    MutexLock lock(&handle_->mu);
    is_writing_ = false;
    if (!ok || is_cancelled_) {
      FinishLocked(absl::CancelledError("the client went away"));
    } else {
      PumpLocked();
    }
  }
  void OnCancel() override {
    MutexLock lock(&handle_->mu);
    is_cancelled_ = true;
    if (!is_writing_) FinishLocked(absl::CancelledError("cancelled"));
  }
  void OnDone() override {
    {
      MutexLock lock(&handle_->mu);
      handle_->reactor = nullptr;
    }
    delete this;
  }

 private:
  // Outlives the reactor in calls that are under way when it goes.
  struct Handle {
    Mutex mu;
    WatchReactor* reactor ABSL_GUARDED_BY(mu) = nullptr;
  };

  void PumpLocked() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    if (is_writing_ || is_finished_ || watch_ == nullptr) return;
    switch (watch_->Next(&message_)) {
      case Watch::kMessage:
        is_writing_ = true;
        StartWrite(&message_);
        return;
      case Watch::kWait:
        return;
      case Watch::kEnd:
        FinishLocked(absl::OkStatus());
        return;
    }
  }
  void FinishLocked(const absl::Status& status) {
    if (is_finished_) return;
    is_finished_ = true;
    Finish(ToGrpc(status));
  }

  // Everything below is guarded by handle_->mu.
  const std::shared_ptr<Handle> handle_;
  std::unique_ptr<Watch> watch_;
  v1::WatchJobResponse message_;
  bool is_writing_ = false;
  bool is_cancelled_ = false;
  bool is_finished_ = false;
};

// Plans compiled at once; the next ones wait.
constexpr int kCompilingThreads = 2;

// How a call ends, having filled in its response if it was successful.
template <typename Response>
absl::Status Answer(absl::StatusOr<Response> result, Response* response) {
  if (result.ok()) *response = *std::move(result);
  return result.status();
}

template <typename Response>
absl::Status AnswerJob(absl::StatusOr<v1::Job> result, Response* response) {
  if (result.ok()) *response->mutable_job() = *std::move(result);
  return result.status();
}

ServerUnaryReactor* FinishNow(CallbackServerContext* context,
                              const absl::Status& status) {
  ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpc(status));
  return reactor;
}

class JobServiceImpl final : public v1::JobService::CallbackService {
 public:
  JobServiceImpl(Dispatcher* dispatcher, const PlanCompiler* compiler)
      : dispatcher_(*dispatcher),
        compiler_(*compiler),
        compiling_(kCompilingThreads) {}

  ServerUnaryReactor* SubmitJob(CallbackServerContext* context,
                                const v1::SubmitJobRequest* request,
                                v1::SubmitJobResponse* response) override {
    if (!request->has_job()) return FinishNow(context, NoJob());
    return FinishLater(context, [=] {
      return AnswerJob(dispatcher_.Submit(*request), response);
    });
  }

  ServerUnaryReactor* ValidateJob(CallbackServerContext* context,
                                  const v1::ValidateJobRequest* request,
                                  v1::ValidateJobResponse* response) override {
    if (!request->has_job()) return FinishNow(context, NoJob());
    return FinishLater(context, [=] {
      return Answer(dispatcher_.ValidateOnly(*request), response);
    });
  }

  ServerUnaryReactor* GetJob(CallbackServerContext* context,
                             const v1::GetJobRequest* request,
                             v1::GetJobResponse* response) override {
    return FinishNow(context,
                     AnswerJob(dispatcher_.Get(request->job_id()), response));
  }

  ServerUnaryReactor* ListJobs(CallbackServerContext* context,
                               const v1::ListJobsRequest* request,
                               v1::ListJobsResponse* response) override {
    return FinishNow(context, Answer(dispatcher_.List(*request), response));
  }

  ServerUnaryReactor* ListRules(CallbackServerContext* context,
                                const v1::ListRulesRequest* request,
                                v1::ListRulesResponse* response) override {
    *response = schedule::AllRules();
    return FinishNow(context, absl::OkStatus());
  }

  ServerUnaryReactor* CancelJob(CallbackServerContext* context,
                                const v1::CancelJobRequest* request,
                                v1::CancelJobResponse* response) override {
    return FinishNow(context,
                     AnswerJob(dispatcher_.Cancel(*request), response));
  }

  grpc::ServerWriteReactor<v1::WatchJobResponse>* WatchJob(
      CallbackServerContext* context,
      const v1::WatchJobRequest* request) override {
    return new WatchReactor(dispatcher_, *request);
  }

  ServerUnaryReactor* GetPlan(CallbackServerContext* context,
                              const v1::GetPlanRequest* request,
                              v1::GetPlanResponse* response) override {
    if (request->target_case() == v1::GetPlanRequest::TARGET_NOT_SET) {
      return FinishNow(context,
                       schedule::ToStatus({{"target",
                                            "neither job_id nor job is set; "
                                            "one of them is required"}}));
    }
    return FinishLater(context,
                       [=] { return Answer(PlanOf(*request), response); });
  }

 private:
  static absl::Status NoJob() {
    return schedule::ToStatus({{"job", "job is required and not set"}});
  }

  absl::StatusOr<v1::GetPlanResponse> PlanOf(
      const v1::GetPlanRequest& request) {
    if (request.has_job()) {
      return DescribePlan(request.job(), request.rank(), compiler_);
    }
    ASSIGN_OR_RETURN(const v1::Job job, dispatcher_.Get(request.job_id()));
    return DescribePlan(job.spec(), request.rank(), compiler_);
  }

  // Finishes a call with what `answer` returns, when a thread is free for it.
  // The request and the response of a call live until then.
  ServerUnaryReactor* FinishLater(CallbackServerContext* context,
                                  std::function<absl::Status()> answer) {
    ServerUnaryReactor* reactor = context->DefaultReactor();
    compiling_.Add([context, reactor, answer = std::move(answer)] {
      // Whoever asked may have given up while the call waited.
      reactor->Finish(ToGrpc(context->IsCancelled()
                                 ? absl::CancelledError("the client went away")
                                 : answer()));
    });
    return reactor;
  }

  Dispatcher& dispatcher_;
  const PlanCompiler& compiler_;
  TaskThreads compiling_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeJobService(Dispatcher* dispatcher,
                                              const PlanCompiler* compiler) {
  return std::make_unique<JobServiceImpl>(dispatcher, compiler);
}

}  // namespace weft::coordinator

#include "coordinator/service/job_service.h"

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "coordinator/core/admission.h"
#include "coordinator/core/dispatcher.h"
#include "coordinator/core/plan_compiler.h"
#include "coordinator/core/validate.h"
#include "coordinator/core/watch_hub.h"
#include "coordinator/service/status.h"
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

// Finishes a call that does not wait for anything.
ServerUnaryReactor* FinishWith(CallbackServerContext* context,
                               const absl::Status& status) {
  ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpc(status));
  return reactor;
}

class JobServiceImpl final : public v1::JobService::CallbackService {
 public:
  JobServiceImpl(Dispatcher* dispatcher, const PlanCompiler* compiler)
      : dispatcher_(*dispatcher), compiler_(*compiler) {}

  ServerUnaryReactor* SubmitJob(CallbackServerContext* context,
                                const v1::SubmitJobRequest* request,
                                v1::SubmitJobResponse* response) override {
    if (!request->has_job()) return FinishWith(context, NoJob());
    return AnswerJob(context, dispatcher_.Submit(*request), response);
  }

  ServerUnaryReactor* ValidateJob(CallbackServerContext* context,
                                  const v1::ValidateJobRequest* request,
                                  v1::ValidateJobResponse* response) override {
    if (!request->has_job()) return FinishWith(context, NoJob());
    return Answer(context, ValidateOnly(*request, compiler_), response);
  }

  ServerUnaryReactor* GetJob(CallbackServerContext* context,
                             const v1::GetJobRequest* request,
                             v1::GetJobResponse* response) override {
    return AnswerJob(context, dispatcher_.Get(request->job_id()), response);
  }

  ServerUnaryReactor* ListJobs(CallbackServerContext* context,
                               const v1::ListJobsRequest* request,
                               v1::ListJobsResponse* response) override {
    return Answer(context, dispatcher_.List(*request), response);
  }

  ServerUnaryReactor* CancelJob(CallbackServerContext* context,
                                const v1::CancelJobRequest* request,
                                v1::CancelJobResponse* response) override {
    return AnswerJob(context, dispatcher_.Cancel(*request), response);
  }

  grpc::ServerWriteReactor<v1::WatchJobResponse>* WatchJob(
      CallbackServerContext* context,
      const v1::WatchJobRequest* request) override {
    return new WatchReactor(dispatcher_, *request);
  }

  ServerUnaryReactor* GetPlan(CallbackServerContext* context,
                              const v1::GetPlanRequest* request,
                              v1::GetPlanResponse* response) override {
    if (request->has_job()) {
      return Answer(context,
                    DescribePlan(request->job(), request->rank(), compiler_),
                    response);
    }
    const absl::StatusOr<v1::Job> job = dispatcher_.Get(request->job_id());
    if (!job.ok()) return FinishWith(context, job.status());
    return Answer(context,
                  DescribePlan(job->spec(), request->rank(), compiler_),
                  response);
  }

 private:
  static absl::Status NoJob() {
    return ToStatus({{"job", "job is required and not set"}});
  }

  template <typename Response>
  static ServerUnaryReactor* Answer(CallbackServerContext* context,
                                    absl::StatusOr<Response> result,
                                    Response* response) {
    if (result.ok()) *response = *std::move(result);
    return FinishWith(context, result.status());
  }

  template <typename Response>
  static ServerUnaryReactor* AnswerJob(CallbackServerContext* context,
                                       absl::StatusOr<v1::Job> result,
                                       Response* response) {
    if (result.ok()) *response->mutable_job() = *std::move(result);
    return FinishWith(context, result.status());
  }

  Dispatcher& dispatcher_;
  const PlanCompiler& compiler_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeJobService(Dispatcher* dispatcher,
                                              const PlanCompiler* compiler) {
  return std::make_unique<JobServiceImpl>(dispatcher, compiler);
}

}  // namespace weft::coordinator

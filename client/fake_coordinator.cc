#include "client/fake_coordinator.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/mutex.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "weft/v1/cluster_service.grpc.pb.h"
#include "weft/v1/job_service.grpc.pb.h"

namespace weft::client {
namespace {

using grpc::ServerContext;
using grpc::Status;

v1::Job MakeJob(const std::string& id, v1::JobState state) {
  v1::Job job;
  job.set_id(id);
  job.set_state(state);
  job.mutable_spec()->set_name("moe");
  job.mutable_spec()->set_steps(3);
  job.mutable_create_time()->set_seconds(1700000000);
  return job;
}

v1::StepMetrics MakeStep(int step) {
  v1::StepMetrics metrics;
  metrics.set_step(step);
  metrics.set_loss(6.0 / step);
  metrics.set_tokens(1000);
  metrics.set_step_seconds(0.5);
  return metrics;
}

Status Illegal() {
  google::rpc::BadRequest request;
  auto* first = request.add_field_violations();
  first->set_field("model.moe.top_k");
  first->set_description("model.moe.top_k=9; must be 1 to num_experts=8");
  auto* second = request.add_field_violations();
  second->set_field("optimizer.learning_rate");
  second->set_description("must be above 0");
  google::rpc::Status details;
  details.set_code(static_cast<int>(grpc::StatusCode::INVALID_ARGUMENT));
  details.set_message("the job is not legal");
  details.add_details()->PackFrom(request);
  return Status(grpc::StatusCode::INVALID_ARGUMENT, details.message(),
                details.SerializeAsString());
}

Status Unknown(const std::string& id) {
  return Status(grpc::StatusCode::NOT_FOUND, absl::StrCat("no job ", id));
}

}  // namespace

class FakeCoordinator::Impl final : public v1::JobService::Service,
                                    public v1::ClusterService::Service {
 public:
  explicit Impl(const Script& script) : script_(script) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port_);
    builder.RegisterService(static_cast<v1::JobService::Service*>(this));
    builder.RegisterService(static_cast<v1::ClusterService::Service*>(this));
    server_ = builder.BuildAndStart();
  }
  ~Impl() override {
    server_->Shutdown(std::chrono::system_clock::now());
    server_->Wait();
  }

  int port() const { return port_; }

  std::vector<v1::SubmitJobRequest> submits() {
    MutexLock lock(&mu_);
    return submits_;
  }
  v1::CancelJobRequest cancel() {
    MutexLock lock(&mu_);
    return cancel_;
  }

  Status SubmitJob(ServerContext*, const v1::SubmitJobRequest* request,
                   v1::SubmitJobResponse* response) override {
    if (request->job().name() == "illegal") return Illegal();
    MutexLock lock(&mu_);
    submits_.push_back(*request);
    if (submits_.size() <= script_.unavailable_submits) {
      return Status(grpc::StatusCode::UNAVAILABLE, "just now");
    }
    if (script_.is_submit_late) {
      return Status(grpc::StatusCode::DEADLINE_EXCEEDED, "too late");
    }
    *response->mutable_job() = MakeJob("moe-1", v1::JOB_STATE_QUEUED);
    response->mutable_job()->add_warnings("nothing is hidden");
    return Status::OK;
  }

  Status ValidateJob(ServerContext*, const v1::ValidateJobRequest* request,
                     v1::ValidateJobResponse* response) override {
    if (request->job().name() == "illegal") return Illegal();
    response->add_warnings("nothing is hidden");
    response->mutable_plan()->set_ops(42);
    return Status::OK;
  }

  Status GetJob(ServerContext*, const v1::GetJobRequest* request,
                v1::GetJobResponse* response) override {
    if (request->job_id() != "moe-1") return Unknown(request->job_id());
    *response->mutable_job() = MakeJob("moe-1", v1::JOB_STATE_RUNNING);
    return Status::OK;
  }

  Status ListRules(ServerContext*, const v1::ListRulesRequest*,
                   v1::ListRulesResponse* response) override {
    v1::Rule& rule = *response->add_rules();
    rule.set_field("parallel.ep");
    rule.set_allowed("a divisor of world");
    rule.add_reads("parallel.world");
    response->add_rules()->set_field("steps");
    v1::LiftedRule& lifted = *response->add_lifted();
    lifted.set_field("parallel.ep");
    lifted.set_refused_elsewhere("combined_1f1b alone");
    lifted.set_why_legal("it is right");
    return Status::OK;
  }

  Status ListJobs(ServerContext*, const v1::ListJobsRequest* request,
                  v1::ListJobsResponse* response) override {
    int next = 0;
    if (!request->page_token().empty()) next = std::stoi(request->page_token());
    const int end = std::min(script_.jobs, next + request->page_size());
    for (; next < end; ++next) {
      *response->add_jobs() =
          MakeJob(absl::StrCat("moe-", next), v1::JOB_STATE_QUEUED);
    }
    if (end < script_.jobs) response->set_next_page_token(absl::StrCat(end));
    return Status::OK;
  }

  Status CancelJob(ServerContext*, const v1::CancelJobRequest* request,
                   v1::CancelJobResponse* response) override {
    if (request->job_id() != "moe-1") return Unknown(request->job_id());
    MutexLock lock(&mu_);
    cancel_ = *request;
    *response->mutable_job() = MakeJob("moe-1", v1::JOB_STATE_STOPPING);
    return Status::OK;
  }

  Status WatchJob(ServerContext* context, const v1::WatchJobRequest* request,
                  grpc::ServerWriter<v1::WatchJobResponse>* writer) override {
    if (request->job_id() != "moe-1") return Unknown(request->job_id());
    v1::WatchJobResponse message;
    message.set_revision(1);
    *message.mutable_snapshot() = MakeJob("moe-1", v1::JOB_STATE_RUNNING);
    writer->Write(message);
    for (int step = 1; step <= script_.steps; ++step) {
      message.set_revision(1 + step);
      *message.mutable_step() = MakeStep(step);
      writer->Write(message);
    }
    const absl::Time silence_ends =
        absl::Now() + absl::Seconds(script_.silent_seconds);
    while (absl::Now() < silence_ends && !context->IsCancelled()) {
      absl::SleepFor(absl::Milliseconds(20));
    }
    message.set_revision(100);
    v1::Job& job = *message.mutable_snapshot();
    job = MakeJob("moe-1", script_.end_state);
    job.set_step(script_.steps);
    job.set_artifacts(script_.artifacts);
    *job.mutable_last_step() = MakeStep(script_.steps);
    job.mutable_spec()->mutable_data()->set_prefix("/data/text");
    if (job.state() == v1::JOB_STATE_FAILED) job.set_message(script_.failure);
    writer->Write(message);
    return Status::OK;
  }

  Status GetPlan(ServerContext*, const v1::GetPlanRequest* request,
                 v1::GetPlanResponse* response) override {
    if (request->job_id() != "moe-1") return Unknown(request->job_id());
    response->set_text(absl::StrCat("plan of rank ", request->rank(), "\n"));
    response->set_timeline("compute |#|\n");
    response->mutable_summary()->mutable_memory()->set_main_weights(1024);
    return Status::OK;
  }

  Status ListWorkers(ServerContext*, const v1::ListWorkersRequest*,
                     v1::ListWorkersResponse* response) override {
    for (const char* id : {"w0", "w1"}) {
      v1::Worker& worker = *response->add_workers();
      worker.set_id(id);
      worker.set_state(v1::WORKER_STATE_IDLE);
    }
    return Status::OK;
  }

  Status GetClusterInfo(ServerContext*, const v1::GetClusterInfoRequest*,
                        v1::GetClusterInfoResponse* response) override {
    response->set_version("fake");
    return Status::OK;
  }

 private:
  const Script script_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
  Mutex mu_;
  std::vector<v1::SubmitJobRequest> submits_ ABSL_GUARDED_BY(mu_);
  v1::CancelJobRequest cancel_ ABSL_GUARDED_BY(mu_);
};

FakeCoordinator::FakeCoordinator(const Script& script)
    : impl_(std::make_unique<Impl>(script)) {}
FakeCoordinator::~FakeCoordinator() = default;

std::string FakeCoordinator::address() const {
  return absl::StrCat("127.0.0.1:", impl_->port());
}
std::vector<v1::SubmitJobRequest> FakeCoordinator::submits() const {
  return impl_->submits();
}
v1::CancelJobRequest FakeCoordinator::cancel() const { return impl_->cancel(); }

}  // namespace weft::client

#include "tests/cluster/cluster.h"

#include <signal.h>

#include <filesystem>
#include <iostream>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "grpcpp/create_channel.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/cluster/await.h"
#include "tests/cluster/files.h"

namespace weft::testing {
namespace {

constexpr size_t kShownLogBytes = 6000;

absl::Status ToAbsl(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                      status.error_message());
}

std::string NewFolder() {
  static int made = 0;
  const std::string folder = absl::StrCat(TestFolder(), "/cluster-", made++);
  std::filesystem::create_directories(folder);
  return folder;
}

void ShowLog(const Subprocess* process) {
  if (process == nullptr) return;
  std::string text = ReadFile(process->log());
  if (text.size() > kShownLogBytes) text.erase(0, text.size() - kShownLogBytes);
  std::cerr << "---- " << process->log() << "\n" << text;
}

}  // namespace

bool IsIdle(const v1::Worker& worker) {
  return worker.state() == v1::WORKER_STATE_IDLE;
}

bool HasEnded(const v1::Job& job) {
  return job.state() == v1::JOB_STATE_SUCCEEDED ||
         job.state() == v1::JOB_STATE_FAILED ||
         job.state() == v1::JOB_STATE_CANCELLED;
}

std::unique_ptr<grpc::ClientContext> CallContext(absl::Duration deadline) {
  auto context = std::make_unique<grpc::ClientContext>();
  context->set_deadline(absl::ToChronoTime(absl::Now() + deadline));
  context->set_wait_for_ready(true);
  return context;
}

Cluster::Cluster(ClusterOptions options)
    : options_(std::move(options)), folder_(NewFolder()) {}

absl::StatusOr<std::unique_ptr<Cluster>> Cluster::Start(
    ClusterOptions options) {
  auto cluster = absl::WrapUnique(new Cluster(std::move(options)));
  RETURN_IF_ERROR(cluster->StartCoordinator());
  cluster->workers_.resize(cluster->options_.workers);
  for (int i = 0; i < cluster->options_.workers; ++i) {
    RETURN_IF_ERROR(cluster->RestartWorker(i));
  }
  const bool is_complete = Await(
      [&] {
        const auto workers = cluster->Workers();
        return workers.ok() && workers->size() == cluster->workers_.size();
      },
      absl::Seconds(60));
  if (!is_complete) return absl::UnavailableError("not all workers attached");
  return cluster;
}

Cluster::~Cluster() {
  if (::testing::Test::HasFailure()) {
    ShowLog(coordinator_.get());
    for (const auto& worker : workers_) ShowLog(worker.get());
  }
}

absl::Status Cluster::StartCoordinator() {
  const std::string port_file = folder_ + "/ports.json";
  std::filesystem::remove(port_file);
  ASSIGN_OR_RETURN(
      coordinator_,
      Subprocess::Start(
          {"coordinator/coordinator", "--listen_address=" + address_,
           "--http_address=" + http_address_,
           "--state_dir=" + folder_ + "/state",
           "--artifacts_dir=" + folder_ + "/artifacts",
           "--port_file=" + port_file},
          folder_ + "/coordinator.log"));
  Await([&] { return std::filesystem::exists(port_file); }, absl::Seconds(30));
  const nlohmann::json ports = nlohmann::json::parse(
      ReadFile(port_file), nullptr, /*allow_exceptions=*/false);
  if (!ports.is_object()) {
    return absl::UnavailableError(absl::StrCat(
        "the coordinator did not start:\n", ReadFile(coordinator_->log())));
  }
  address_ = ports["grpc"];
  http_address_ = ports["http"];
  if (jobs_ != nullptr) return absl::OkStatus();
  grpc::ChannelArguments args;
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
  const auto channel = grpc::CreateCustomChannel(
      address_, grpc::InsecureChannelCredentials(), args);
  jobs_ = v1::JobService::NewStub(channel);
  cluster_ = v1::ClusterService::NewStub(channel);
  return absl::OkStatus();
}

absl::Status Cluster::RestartWorker(int index) {
  std::vector<std::string> command = {
      options_.worker, "--coordinator=" + address_,
      absl::StrCat("--worker_id=worker-", index)};
  command.insert(command.end(), options_.worker_flags.begin(),
                 options_.worker_flags.end());
  ASSIGN_OR_RETURN(workers_[index],
                   Subprocess::Start(command, absl::StrCat(folder_, "/worker-",
                                                           index, ".log")));
  return absl::OkStatus();
}

absl::Status Cluster::RestartCoordinator() {
  coordinator_.reset();
  return StartCoordinator();
}

absl::StatusOr<v1::Job> Cluster::Submit(const v1::TrainingJob& job) {
  v1::SubmitJobRequest request;
  *request.mutable_job() = job;
  v1::SubmitJobResponse response;
  RETURN_IF_ERROR(
      ToAbsl(jobs_->SubmitJob(CallContext().get(), request, &response)));
  return response.job();
}

absl::StatusOr<v1::Job> Cluster::Get(const std::string& job_id) {
  v1::GetJobRequest request;
  request.set_job_id(job_id);
  v1::GetJobResponse response;
  RETURN_IF_ERROR(
      ToAbsl(jobs_->GetJob(CallContext().get(), request, &response)));
  return response.job();
}

absl::StatusOr<v1::Job> Cluster::Cancel(const std::string& job_id) {
  v1::CancelJobRequest request;
  request.set_job_id(job_id);
  v1::CancelJobResponse response;
  RETURN_IF_ERROR(
      ToAbsl(jobs_->CancelJob(CallContext().get(), request, &response)));
  return response.job();
}

absl::StatusOr<std::vector<v1::Job>> Cluster::List() {
  v1::ListJobsResponse response;
  RETURN_IF_ERROR(ToAbsl(
      jobs_->ListJobs(CallContext().get(), v1::ListJobsRequest(), &response)));
  return std::vector<v1::Job>(response.jobs().begin(), response.jobs().end());
}

absl::StatusOr<std::vector<v1::Worker>> Cluster::Workers() {
  v1::ListWorkersResponse response;
  RETURN_IF_ERROR(ToAbsl(cluster_->ListWorkers(
      CallContext().get(), v1::ListWorkersRequest(), &response)));
  return std::vector<v1::Worker>(response.workers().begin(),
                                 response.workers().end());
}

absl::StatusOr<JobResult> Cluster::Follow(
    const v1::Job& submitted,
    const std::function<void(const v1::StepMetrics&)>& on_step,
    absl::Duration timeout) {
  v1::WatchJobRequest request;
  request.set_job_id(submitted.id());
  request.set_after_revision(submitted.revision());
  const auto context = CallContext(timeout);
  const auto stream = jobs_->WatchJob(context.get(), request);
  JobResult result;
  v1::WatchJobResponse update;
  while (stream->Read(&update)) {
    if (!update.has_step()) continue;
    result.steps.push_back(update.step());
    if (on_step) on_step(update.step());
  }
  RETURN_IF_ERROR(ToAbsl(stream->Finish()));
  ASSIGN_OR_RETURN(result.job, Get(submitted.id()));
  result.parameters = ReadFolder(result.job.artifacts() + "/parameters");
  return result;
}

absl::StatusOr<JobResult> Cluster::Run(const v1::TrainingJob& job) {
  ASSIGN_OR_RETURN(const v1::Job submitted, Submit(job));
  return Follow(submitted);
}

absl::StatusOr<v1::Job> Cluster::AwaitJob(
    const std::string& job_id,
    const std::function<bool(const v1::Job&)>& is_as_wanted,
    absl::Duration timeout) {
  absl::StatusOr<v1::Job> job;
  const bool done = Await(
      [&] {
        job = Get(job_id);
        return !job.ok() || is_as_wanted(*job);
      },
      timeout);
  if (done) return job;
  return absl::DeadlineExceededError(
      absl::StrCat("the job stayed ", job->ShortDebugString()));
}

absl::StatusOr<std::vector<v1::Worker>> Cluster::AwaitWorkers(
    const std::function<bool(const v1::Worker&)>& is_as_wanted,
    absl::Duration timeout) {
  absl::StatusOr<std::vector<v1::Worker>> workers;
  const bool done = Await(
      [&] {
        workers = Workers();
        if (!workers.ok()) return true;
        for (const v1::Worker& worker : *workers) {
          if (!is_as_wanted(worker)) return false;
        }
        return true;
      },
      timeout);
  if (done) return workers;
  std::string seen;
  for (const v1::Worker& worker : *workers) {
    absl::StrAppend(&seen, "\n  ", worker.ShortDebugString());
  }
  return absl::DeadlineExceededError(
      absl::StrCat("the workers stayed as they were:", seen));
}

}  // namespace weft::testing

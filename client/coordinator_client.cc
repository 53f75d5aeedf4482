#include "client/coordinator_client.h"

#include <grpcpp/grpcpp.h>

#include <random>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "google/rpc/status.pb.h"
#include "weft/v1/cluster_service.grpc.pb.h"
#include "weft/v1/job_service.grpc.pb.h"

namespace weft::client {
namespace {

// Plans of large jobs are long.
constexpr int kMaxMessageBytes = 64 << 20;

absl::Status ToAbsl(const grpc::Status& status) {
  absl::Status result(static_cast<absl::StatusCode>(status.error_code()),
                      status.error_message());
  google::rpc::Status details;
  if (details.ParseFromString(status.error_details())) {
    for (const google::protobuf::Any& detail : details.details()) {
      result.SetPayload(detail.type_url(), absl::Cord(detail.value()));
    }
  }
  return result;
}

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address) {
  grpc::ChannelArguments args;
  args.SetMaxReceiveMessageSize(kMaxMessageBytes);
  // The coordinator is in the same cluster as its clients.
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // A watch is silent for as long as a step takes; a dead peer is not a long
  // step.
  args.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 20'000);
  args.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  args.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // Someone is waiting at the terminal.
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1'000);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(),
                                   args);
}

class GrpcCoordinatorClient : public CoordinatorClient {
 public:
  explicit GrpcCoordinatorClient(Options options)
      : options_(std::move(options)),
        channel_(MakeChannel(options_.address)),
        jobs_(v1::JobService::NewStub(channel_)),
        cluster_(v1::ClusterService::NewStub(channel_)) {}

  absl::StatusOr<v1::SubmitJobResponse> SubmitJob(
      v1::SubmitJobRequest request) override {
    if (request.request_id().empty()) request.set_request_id(NewRequestId());
    return Call(*jobs_, &v1::JobService::Stub::SubmitJob, request,
                options_.plan_timeout);
  }
  absl::StatusOr<v1::ValidateJobResponse> ValidateJob(
      const v1::ValidateJobRequest& request) override {
    return Call(*jobs_, &v1::JobService::Stub::ValidateJob, request,
                options_.plan_timeout);
  }
  absl::StatusOr<v1::GetJobResponse> GetJob(
      const v1::GetJobRequest& request) override {
    return Call(*jobs_, &v1::JobService::Stub::GetJob, request,
                options_.call_timeout);
  }
  absl::StatusOr<v1::ListJobsResponse> ListJobs(
      const v1::ListJobsRequest& request) override {
    return Call(*jobs_, &v1::JobService::Stub::ListJobs, request,
                options_.call_timeout);
  }
  absl::StatusOr<v1::CancelJobResponse> CancelJob(
      const v1::CancelJobRequest& request) override {
    return Call(*jobs_, &v1::JobService::Stub::CancelJob, request,
                options_.call_timeout);
  }
  absl::StatusOr<v1::GetPlanResponse> GetPlan(
      const v1::GetPlanRequest& request) override {
    return Call(*jobs_, &v1::JobService::Stub::GetPlan, request,
                options_.plan_timeout);
  }
  absl::StatusOr<v1::ListRulesResponse> ListRules() override {
    return Call(*jobs_, &v1::JobService::Stub::ListRules, {},
                options_.call_timeout);
  }
  absl::StatusOr<v1::ListWorkersResponse> ListWorkers() override {
    return Call(*cluster_, &v1::ClusterService::Stub::ListWorkers,
                v1::ListWorkersRequest(), options_.call_timeout);
  }
  absl::StatusOr<v1::GetClusterInfoResponse> GetClusterInfo() override {
    return Call(*cluster_, &v1::ClusterService::Stub::GetClusterInfo,
                v1::GetClusterInfoRequest(), options_.call_timeout);
  }

  absl::Status WatchJob(const v1::WatchJobRequest& request, absl::Time deadline,
                        const std::function<void(const v1::WatchJobResponse&)>&
                            on_message) override {
    grpc::ClientContext context;
    if (deadline != absl::InfiniteFuture()) {
      context.set_deadline(absl::ToChronoTime(deadline));
    }
    const auto reader = jobs_->WatchJob(&context, request);
    v1::WatchJobResponse response;
    while (reader->Read(&response)) on_message(response);
    return ToAbsl(reader->Finish());
  }

 private:
  template <typename Stub, typename Request, typename Response>
  absl::StatusOr<Response> Call(
      Stub& stub,
      grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                   Response*),
      const Request& request, absl::Duration timeout) {
    absl::Duration backoff = options_.first_backoff;
    for (int attempt = 1;; ++attempt) {
      grpc::ClientContext context;
      context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
      Response response;
      const grpc::Status status = (stub.*method)(&context, request, &response);
      if (status.ok()) return response;
      if (status.error_code() != grpc::StatusCode::UNAVAILABLE ||
          attempt >= options_.tries) {
        return ToAbsl(status);
      }
      absl::SleepFor(backoff);
      backoff *= 2;
    }
  }

  const Options options_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::JobService::Stub> jobs_;
  const std::unique_ptr<v1::ClusterService::Stub> cluster_;
};

}  // namespace

std::unique_ptr<CoordinatorClient> CoordinatorClient::Create(Options options) {
  return std::make_unique<GrpcCoordinatorClient>(std::move(options));
}

std::string NewRequestId() {
  std::random_device random;
  const auto bits16 = [&] { return random() & 0xffff; };
  return absl::StrFormat("%04x%04x-%04x-4%03x-%04x-%04x%04x%04x", bits16(),
                         bits16(), bits16(), bits16() & 0xfff,
                         (bits16() & 0x3fff) | 0x8000, bits16(), bits16(),
                         bits16());
}

}  // namespace weft::client

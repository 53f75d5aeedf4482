#include "coordinator/service/grpc_server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "coordinator/service/cluster_services.h"
#include "coordinator/service/job_service.h"
#include "google/protobuf/message.h"
#include "grpc/health/v1/health.pb.h"
#include "weft/v1/cluster_service.grpc.pb.h"
#include "weft/v1/job_service.grpc.pb.h"
#include "weft/worker/v1/worker_control_service.grpc.pb.h"

namespace weft::coordinator {
namespace {

// Plans travel in one message.
constexpr int kMaxMessageBytes = 64 << 20;
constexpr int kKeepaliveTimeMs = 20000;
constexpr int kKeepaliveTimeoutMs = 10000;
constexpr int kMinPingIntervalMs = 10000;

class GrpcServerImpl : public GrpcServer {
 public:
  GrpcServerImpl(std::vector<std::unique_ptr<grpc::Service>> services,
                 std::unique_ptr<grpc::Server> server, int port,
                 std::string address)
      : services_(std::move(services)),
        server_(std::move(server)),
        port_(port),
        address_(std::move(address)) {
    // The process, then each service by name.
    SetServing("", true);
    SetServing(v1::JobService::service_full_name(), true);
    SetServing(v1::ClusterService::service_full_name(), true);
    SetServing(worker::v1::WorkerControlService::service_full_name(), true);
    SetServing("startup", true);
    SetReady(true);
    SetAlive(true);
  }
  ~GrpcServerImpl() override { Shutdown(absl::ZeroDuration()); }

  int port() const override { return port_; }
  const std::string& address() const override { return address_; }

  void SetReady(bool is_ready) override { SetServing("readiness", is_ready); }
  void SetAlive(bool is_alive) override { SetServing("liveness", is_alive); }

  void Shutdown(absl::Duration grace) override {
    server_->GetHealthCheckService()->SetServingStatus(false);
    server_->Shutdown(std::chrono::system_clock::now() +
                      absl::ToChronoMicroseconds(grace));
    server_->Wait();
  }

 private:
  void SetServing(const std::string& name, bool is_serving) {
    server_->GetHealthCheckService()->SetServingStatus(name, is_serving);
  }

  const std::vector<std::unique_ptr<grpc::Service>> services_;
  const std::unique_ptr<grpc::Server> server_;  // ends before the services
  const int port_;
  const std::string address_;
};

void SetLimits(grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.SetMaxSendMessageSize(kMaxMessageBytes);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                             kKeepaliveTimeoutMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(
      GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
      kMinPingIntervalMs);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 2);
  // Two coordinators on one port would each get half of the calls.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
}

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(
    const Options& options) {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  // gRPC's own health service brings no description that reflection could give.
  google::protobuf::LinkMessageReflection<
      grpc::health::v1::HealthCheckRequest>();
  std::vector<std::unique_ptr<grpc::Service>> services;
  services.push_back(MakeJobService(options.dispatcher, options.compiler));
  services.push_back(MakeClusterService(
      options.dispatcher, {options.version, options.http_address}));
  services.push_back(
      MakeWorkerControlService(options.dispatcher, options.register_timeout));

  grpc::ServerBuilder builder;
  SetLimits(builder);
  int port = 0;
  builder.AddListeningPort(options.listen_address,
                           grpc::InsecureServerCredentials(), &port);
  for (const auto& service : services) builder.RegisterService(service.get());
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || port == 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", options.listen_address,
                     "; is the address this machine's, and the port free?"));
  }
  const absl::string_view listen = options.listen_address;
  return std::make_unique<GrpcServerImpl>(
      std::move(services), std::move(server), port,
      absl::StrCat(listen.substr(0, listen.rfind(':')), ":", port));
}

}  // namespace weft::coordinator

#include "worker/service/health_server.h"

#include <chrono>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/health_check_service_interface.h"

namespace weft::service {

absl::StatusOr<std::unique_ptr<HealthServer>> HealthServer::Start(
    const Options& options) {
  grpc::EnableDefaultHealthCheckService(true);
  // A server needs a service of its own beside that of health; this one knows
  // no method.
  auto nothing = std::make_unique<grpc::CallbackGenericService>();
  grpc::ServerBuilder builder;
  builder.RegisterCallbackGenericService(nothing.get());
  int port = 0;
  builder.AddListeningPort(options.address, grpc::InsecureServerCredentials(),
                           &port);
  // Two workers on one port would each get half of the calls.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || port == 0) {
    return absl::UnavailableError(
        absl::StrCat("--health_address=", options.address,
                     ": cannot listen; is the address this machine's, and the "
                     "port free?"));
  }
  const absl::string_view listen = options.address;
  return absl::WrapUnique(new HealthServer(
      std::move(nothing), std::move(server),
      absl::StrCat(listen.substr(0, listen.rfind(':')), ":", port),
      *options.pulse));
}

HealthServer::HealthServer(
    std::unique_ptr<grpc::CallbackGenericService> nothing,
    std::unique_ptr<grpc::Server> server, std::string address,
    const Pulse& pulse)
    : nothing_(std::move(nothing)),
      server_(std::move(server)),
      address_(std::move(address)),
      pulse_(pulse),
      watch_(pulse.patience() / 5, [this] { Publish(); }) {
  Publish();
}

HealthServer::~HealthServer() {
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
}

void HealthServer::Set(const Health& health) {
  {
    MutexLock lock(&mu_);
    health_ = health;
  }
  Publish();
}

void HealthServer::Publish() {
  grpc::HealthCheckServiceInterface& service =
      *server_->GetHealthCheckService();
  MutexLock lock(&mu_);
  const bool is_turning = pulse_.Check().ok();
  service.SetServingStatus("", is_turning);
  service.SetServingStatus("liveness", is_turning);
  service.SetServingStatus("startup", health_.has_started);
  service.SetServingStatus("readiness", is_turning && health_.is_ready);
}

}  // namespace weft::service

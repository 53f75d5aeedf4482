#include "worker/service/health_probe.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"

namespace weft::service {
namespace {

constexpr absl::Duration kPoll = absl::Milliseconds(20);
constexpr char kCheck[] = "/grpc.health.v1.Health/Check";

// HealthCheckRequest.service is field 1.
grpc::ByteBuffer Request(const std::string& service) {
  const grpc::Slice slice(
      absl::StrCat("\x0a", std::string(1, service.size()), service));
  return grpc::ByteBuffer(&slice, 1);
}

std::string Bytes(const grpc::ByteBuffer& buffer) {
  grpc::Slice slice;
  if (!buffer.DumpToSingleSlice(&slice).ok()) return "";
  return std::string(reinterpret_cast<const char*>(slice.begin()),
                     slice.size());
}

}  // namespace

std::string Probe(const std::string& address, const std::string& service) {
  grpc::ChannelArguments no_proxy;
  no_proxy.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  grpc::GenericStub stub(grpc::CreateCustomChannel(
      address, grpc::InsecureChannelCredentials(), no_proxy));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::seconds(10));
  grpc::CompletionQueue queue;
  const auto call =
      stub.PrepareUnaryCall(&context, kCheck, Request(service), &queue);
  call->StartCall();
  grpc::ByteBuffer answer;
  grpc::Status status;
  call->Finish(&answer, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  if (status.error_code() == grpc::StatusCode::NOT_FOUND) return "NOT_FOUND";
  if (!status.ok()) return status.error_message();
  // HealthCheckResponse.status is field 1.
  return Bytes(answer) == "\x08\x01" ? "SERVING" : "NOT_SERVING";
}

std::string AwaitProbe(const std::string& address, const std::string& service,
                       const std::string& wanted, absl::Duration timeout) {
  const auto deadline = DeadlineAfter(timeout);
  std::string answer = Probe(address, service);
  while (answer != wanted && std::chrono::steady_clock::now() < deadline) {
    Notification().WaitForNotificationWithTimeout(kPoll);
    answer = Probe(address, service);
  }
  return answer;
}

}  // namespace weft::service

// A transport for tests, which notes what happens to it.
#ifndef WEFT_WORKER_SERVICE_FAKE_TRANSPORT_H_
#define WEFT_WORKER_SERVICE_FAKE_TRANSPORT_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/comm/communicator.h"
#include "worker/service/transport.h"

namespace weft::service {

// What happened to a transport.
struct TransportEvents {
  std::vector<std::string> connected_to;
  std::vector<std::string> communicators;
  bool is_gone = false;
};

class FakeTransport : public Transport {
 public:
  FakeTransport(std::string address, TransportEvents* events)
      : address_(std::move(address)), events_(*events) {}
  ~FakeTransport() override { events_.is_gone = true; }

  const std::string& address() const override { return address_; }
  absl::Status Connect(absl::Span<const std::string> addresses) override {
    events_.connected_to.assign(addresses.begin(), addresses.end());
    return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<comm::Communicator>> CreateCommunicator(
      absl::string_view name, int id, absl::Span<const int> ranks) override {
    events_.communicators.push_back(std::string(name));
    return absl::UnavailableError("a fake has none");
  }

 private:
  const std::string address_;
  TransportEvents& events_;
};

}  // namespace weft::service

#endif  // WEFT_WORKER_SERVICE_FAKE_TRANSPORT_H_

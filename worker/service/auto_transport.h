// AutoTransport: the transport that suits where the ranks of a job are.
#ifndef WEFT_WORKER_SERVICE_AUTO_TRANSPORT_H_
#define WEFT_WORKER_SERVICE_AUTO_TRANSPORT_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker/service/transport.h"
#include "worker/service/transport_choice.h"

namespace weft::service {

// Opens two transports and, once all ranks are known, goes on with one: that
// between peers where ReachesAllPeers() of transport_choice.h says so, else the
// one over the network. All ranks know the same, so all choose the same.
// Threads as Transport.
class AutoTransport : public Transport {
 public:
  // `fabric` may be null: this rank has none.
  AutoTransport(Topology topology, std::unique_ptr<Transport> fabric,
                std::unique_ptr<Transport> network);

  const std::string& address() const override { return address_; }
  // INVALID_ARGUMENT, naming the rank, when one does not choose; else what the
  // chosen transport says.
  absl::Status Connect(absl::Span<const std::string> addresses) override;
  absl::StatusOr<std::unique_ptr<comm::Communicator>> CreateCommunicator(
      absl::string_view name, int id, absl::Span<const int> ranks) override;

 private:
  std::unique_ptr<Transport> fabric_;
  std::unique_ptr<Transport> network_;
  std::string address_;
  Transport* chosen_ = nullptr;
};

}  // namespace weft::service

#endif  // WEFT_WORKER_SERVICE_AUTO_TRANSPORT_H_

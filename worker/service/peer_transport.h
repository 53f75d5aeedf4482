// PeerTransport: the transport by which ranks fetch from each other's memory,
// in a world of which not all need to reach each other.
#ifndef WEFT_WORKER_SERVICE_PEER_TRANSPORT_H_
#define WEFT_WORKER_SERVICE_PEER_TRANSPORT_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker/service/transport.h"
#include "worker/service/transport_choice.h"

namespace weft::service {

// Tells the other ranks where this one is, and makes communicators of those
// that can read each other's memory. Threads as Transport.
class PeerTransport : public Transport {
 public:
  // `fabric` opens what it shares with a rank in CreateCommunicator().
  PeerTransport(Topology topology, std::unique_ptr<Transport> fabric);

  const std::string& address() const override { return address_; }
  // INVALID_ARGUMENT, naming the rank, when one sends another kind of address.
  absl::Status Connect(absl::Span<const std::string> addresses) override;
  // FAILED_PRECONDITION, naming the group, two ranks and the reason, when one
  // cannot read the memory of another.
  absl::StatusOr<std::unique_ptr<comm::Communicator>> CreateCommunicator(
      absl::string_view name, int id, absl::Span<const int> ranks) override;

 private:
  const std::unique_ptr<Transport> fabric_;
  const std::string address_;
  std::vector<TransportOffer> offers_;  // of all ranks, when connected
};

}  // namespace weft::service

#endif  // WEFT_WORKER_SERVICE_PEER_TRANSPORT_H_

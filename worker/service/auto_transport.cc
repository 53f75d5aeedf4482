#include "worker/service/auto_transport.h"

#include <utility>
#include <vector>

#include "base/status_macros.h"

namespace weft::service {

AutoTransport::AutoTransport(Topology topology,
                             std::unique_ptr<Transport> fabric,
                             std::unique_ptr<Transport> network)
    : fabric_(std::move(fabric)), network_(std::move(network)) {
  TransportOffer offer;
  offer.topology = std::move(topology);
  if (fabric_ != nullptr) offer.fabric = fabric_->address();
  offer.network = network_->address();
  address_ = EncodeOffer(offer);
}

absl::Status AutoTransport::Connect(absl::Span<const std::string> addresses) {
  ASSIGN_OR_RETURN(std::vector<TransportOffer> offers, DecodeOffers(addresses));
  const bool near = ReachesAllPeers(offers);
  std::vector<std::string> of_chosen;
  for (TransportOffer& offer : offers) {
    of_chosen.push_back(std::move(near ? offer.fabric : offer.network));
  }
  (near ? network_ : fabric_).reset();
  chosen_ = near ? fabric_.get() : network_.get();
  return chosen_->Connect(of_chosen);
}

absl::StatusOr<std::unique_ptr<comm::Communicator>>
AutoTransport::CreateCommunicator(absl::string_view name, int id,
                                  absl::Span<const int> ranks) {
  return chosen_->CreateCommunicator(name, id, ranks);
}

}  // namespace weft::service

#include "worker/service/peer_transport.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace weft::service {
namespace {

std::string OfferOf(Topology topology, const Transport& fabric) {
  TransportOffer offer;
  offer.topology = std::move(topology);
  offer.fabric = fabric.address();
  return EncodeOffer(offer);
}

}  // namespace

PeerTransport::PeerTransport(Topology topology,
                             std::unique_ptr<Transport> fabric)
    : fabric_(std::move(fabric)),
      address_(OfferOf(std::move(topology), *fabric_)) {}

absl::Status PeerTransport::Connect(absl::Span<const std::string> addresses) {
  ASSIGN_OR_RETURN(offers_, DecodeOffers(addresses));
  std::vector<std::string> of_fabric;
  for (const TransportOffer& offer : offers_) {
    of_fabric.push_back(offer.fabric);
  }
  return fabric_->Connect(of_fabric);
}

absl::StatusOr<std::unique_ptr<comm::Communicator>>
PeerTransport::CreateCommunicator(absl::string_view name, int id,
                                  absl::Span<const int> ranks) {
  RETURN_IF_ERROR(
      Annotate(CheckReach(offers_, ranks), absl::StrCat("group ", name)));
  return fabric_->CreateCommunicator(name, id, ranks);
}

}  // namespace weft::service

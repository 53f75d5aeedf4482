// Ranks choose their transport together: each offers its own addresses and says
// which GPUs it reaches, and all draw the same conclusion from all offers.
//
// Pure.
#ifndef WEFT_WORKER_SERVICE_TRANSPORT_CHOICE_H_
#define WEFT_WORKER_SERVICE_TRANSPORT_CHOICE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace weft::service {

// Where a rank is. Words without blanks and commas.
struct Topology {
  std::string host;    // what no other host, and no earlier boot, has
  std::string device;  // what no other GPU has
  std::vector<std::string> peers;  // GPUs whose memory it can read
};

// Of one rank and stream.
struct TransportOffer {
  Topology topology;
  std::string fabric;   // address of its transport between peers; empty: none
  std::string network;  // address of the one that reaches everything
};

std::string EncodeOffer(const TransportOffer& offer);

// INVALID_ARGUMENT, with how the text begins, when it is no offer: a worker
// with another --transport sends another address.
absl::StatusOr<TransportOffer> DecodeOffer(absl::string_view text);

// Those of all ranks. The error names the rank, too.
absl::StatusOr<std::vector<TransportOffer>> DecodeOffers(
    absl::Span<const std::string> texts);

// OK when each of `group`, places in `ranks`, can read the memory of every
// other: they are on one host, and share a device or reach each other's. Else
// FAILED_PRECONDITION, naming two of them and where they are.
absl::Status CheckReach(absl::Span<const TransportOffer> ranks,
                        absl::Span<const int> group);

// Whether ranks are better off with the fabric: there are several, every one
// offers it, all are on one host, and each can read the memory of every other.
bool ReachesAllPeers(absl::Span<const TransportOffer> ranks);

}  // namespace weft::service

#endif  // WEFT_WORKER_SERVICE_TRANSPORT_CHOICE_H_

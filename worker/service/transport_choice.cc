#include "worker/service/transport_choice.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"

namespace weft::service {
namespace {

constexpr char kFormat[] = "weft.transports.1";

bool CanRead(const Topology& reader, const std::string& device) {
  return std::find(reader.peers.begin(), reader.peers.end(), device) !=
         reader.peers.end();
}

absl::Status NoOffer(absl::string_view text) {
  return absl::InvalidArgumentError(absl::StrCat(
      "an address begins with \"",
      absl::CHexEscape(text.substr(0, std::min<size_t>(text.find('\n'), 100))),
      "\", not with \"", kFormat,
      "\"; all workers of a job need the same --transport"));
}

}  // namespace

// A line of text, then both addresses, which are not text.
std::string EncodeOffer(const TransportOffer& offer) {
  const Topology& at = offer.topology;
  return absl::StrCat(kFormat, " ", at.host, " ", at.device, " ",
                      absl::StrJoin(at.peers, ","), " ", offer.fabric.size(),
                      "\n", offer.fabric, offer.network);
}

absl::StatusOr<TransportOffer> DecodeOffer(absl::string_view text) {
  const size_t end = text.find('\n');
  if (end == absl::string_view::npos) return NoOffer(text);
  const std::vector<std::string> words =
      absl::StrSplit(text.substr(0, end), ' ');
  const absl::string_view addresses = text.substr(end + 1);
  uint64_t fabric_size = 0;
  if (words.size() != 5 || words[0] != kFormat ||
      !absl::SimpleAtoi(words[4], &fabric_size) ||
      fabric_size > addresses.size()) {
    return NoOffer(text);
  }
  TransportOffer offer;
  offer.topology.host = words[1];
  offer.topology.device = words[2];
  offer.topology.peers = absl::StrSplit(words[3], ',', absl::SkipEmpty());
  offer.fabric = std::string(addresses.substr(0, fabric_size));
  offer.network = std::string(addresses.substr(fabric_size));
  return offer;
}

absl::StatusOr<std::vector<TransportOffer>> DecodeOffers(
    absl::Span<const std::string> texts) {
  std::vector<TransportOffer> offers;
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    ASSIGN_OR_RETURN(TransportOffer offer, DecodeOffer(texts[rank]),
                     _ << "rank " << rank);
    offers.push_back(std::move(offer));
  }
  return offers;
}

absl::Status CheckReach(absl::Span<const TransportOffer> ranks,
                        absl::Span<const int> group) {
  for (const int a : group) {
    for (const int b : group) {
      const Topology& reader = ranks[a].topology;
      const Topology& other = ranks[b].topology;
      if (reader.host != other.host) {
        return absl::FailedPreconditionError(absl::StrCat(
            "rank ", a, " on host ", reader.host, " cannot read the memory of ",
            "rank ", b, " on host ", other.host));
      }
      if (reader.device == other.device || CanRead(reader, other.device)) {
        continue;
      }
      return absl::FailedPreconditionError(absl::StrCat(
          "rank ", a, " on ", reader.device, " cannot read the memory of rank ",
          b, " on ", other.device, " of the same host"));
    }
  }
  return absl::OkStatus();
}

bool ReachesAllPeers(absl::Span<const TransportOffer> ranks) {
  if (ranks.size() < 2) return false;
  for (size_t a = 0; a < ranks.size(); ++a) {
    if (ranks[a].fabric.empty() ||
        ranks[a].topology.host != ranks[0].topology.host) {
      return false;
    }
    for (size_t b = 0; b < ranks.size(); ++b) {
      if (a != b && !CanRead(ranks[a].topology, ranks[b].topology.device)) {
        return false;
      }
    }
  }
  return true;
}

}  // namespace weft::service

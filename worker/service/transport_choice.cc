#include "worker/service/transport_choice.h"

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

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

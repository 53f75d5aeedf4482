#include "kernels/comm/host_rendezvous.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/comm/collective.h"

namespace weft::comm {

absl::StatusOr<HostRendezvous> HostRendezvous::Create(HostAddress own,
                                                      std::string place,
                                                      Limits limits) {
  ASSIGN_OR_RETURN(own.host, HostIdentity());
  own.place = std::move(place);
  return HostRendezvous(std::move(own), limits);
}

absl::Status HostRendezvous::Connect(absl::Span<const std::string> addresses) {
  if (!addresses_.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("transport ", own_.stream, " is connected already"));
  }
  if (static_cast<int>(addresses.size()) != own_.world) {
    return absl::InvalidArgumentError(
        absl::StrCat("transport ", own_.stream, ": ", addresses.size(),
                     " addresses for a world of ", own_.world));
  }
  addresses_.assign(addresses.begin(), addresses.end());
  return absl::OkStatus();
}

absl::Status HostRendezvous::Admit(absl::string_view group, int id,
                                   absl::Span<const int> ranks, int* member) {
  if (addresses_.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "group ", group, ": transport ", own_.stream, " is not connected"));
  }
  RETURN_IF_ERROR(CheckGroup(group, ranks, own_.rank, member));
  if (ranks.back() >= own_.world ||
      static_cast<int>(ranks.size()) > limits_.ranks) {
    return absl::InvalidArgumentError(
        absl::StrCat("group ", group, " of ", ranks.size(), " ranks up to ",
                     ranks.back(), " of a world of ", own_.world,
                     "; a group has at most ", limits_.ranks));
  }
  if (id < 0 || id >= limits_.groups || !used_ids_.insert(id).second) {
    return absl::InvalidArgumentError(absl::StrCat(
        "group ", group, ": id ", id, " of transport ", own_.stream,
        " is not in [0, ", limits_.groups, ") or used already"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> HostRendezvous::PlaceOf(int rank) const {
  HostAddress expected = own_;
  expected.rank = rank;
  ASSIGN_OR_RETURN(
      std::string place, ParsePlace(addresses_[rank], expected),
      _ << "transport " << own_.stream << " of rank " << own_.rank);
  return place;
}

}  // namespace weft::comm

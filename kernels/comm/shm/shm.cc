#include "kernels/comm/shm/shm.h"

#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/comm/collective.h"
#include "kernels/comm/host_address.h"
#include "kernels/comm/shm/board.h"
#include "kernels/comm/shm/shm_communicator.h"

namespace weft::comm {
namespace {

static_assert(ShmTransport::kMaxRanks == shm::kMaxMembers, "");
static_assert(ShmTransport::kMaxCommunicators == shm::kMaxGroups, "");

absl::Status CheckOptions(const ShmTransportOptions& options) {
  if (options.world < 1 || options.rank < 0 || options.rank >= options.world) {
    return absl::InvalidArgumentError(
        absl::StrCat("transport ", options.name, ": rank ", options.rank,
                     " of a world of ", options.world));
  }
  if (options.deadline <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        absl::StrCat("transport ", options.name, " needs a deadline > 0, not ",
                     absl::FormatDuration(options.deadline)));
  }
  return absl::OkStatus();
}

HostAddress AddressOf(const ShmTransportOptions& options,
                      const std::string& host, int rank) {
  HostAddress address;
  address.transport = "shm";
  address.stream = options.name;
  address.rank = rank;
  address.world = options.world;
  address.host = host;
  return address;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ShmTransport>> ShmTransport::Create(
    ShmTransportOptions options) {
  RETURN_IF_ERROR(CheckOptions(options));
  ASSIGN_OR_RETURN(std::string host, HostIdentity());
  ASSIGN_OR_RETURN(auto own, SharedRegion::Create(sizeof(shm::Board)),
                   _ << "transport " << options.name);
  HostAddress address = AddressOf(options, host, options.rank);
  address.place = own->place();
  return absl::WrapUnique(new ShmTransport(std::move(options), std::move(own),
                                           std::move(host),
                                           FormatAddress(address)));
}

ShmTransport::ShmTransport(ShmTransportOptions options,
                           std::shared_ptr<SharedRegion> own, std::string host,
                           std::string address)
    : options_(std::move(options)),
      host_(std::move(host)),
      address_(std::move(address)),
      regions_(options_.world) {
  regions_[options_.rank] = std::move(own);
}

absl::Status ShmTransport::Connect(absl::Span<const std::string> addresses) {
  if (!addresses_.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("transport ", options_.name, " is connected already"));
  }
  if (static_cast<int>(addresses.size()) != options_.world) {
    return absl::InvalidArgumentError(
        absl::StrCat("transport ", options_.name, ": ", addresses.size(),
                     " addresses for a world of ", options_.world));
  }
  addresses_.assign(addresses.begin(), addresses.end());
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<SharedRegion>> ShmTransport::RegionOf(int rank) {
  if (regions_[rank] != nullptr) return regions_[rank];
  ASSIGN_OR_RETURN(
      const std::string place,
      ParsePlace(addresses_[rank], AddressOf(options_, host_, rank)),
      _ << "transport " << options_.name << " of rank " << options_.rank);
  ASSIGN_OR_RETURN(regions_[rank],
                   SharedRegion::Open(place, sizeof(shm::Board)),
                   _ << "transport " << options_.name << ", rank " << rank);
  return regions_[rank];
}

absl::StatusOr<std::unique_ptr<Communicator>> ShmTransport::CreateCommunicator(
    absl::string_view name, int id, absl::Span<const int> ranks) {
  if (addresses_.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "group ", name, ": transport ", options_.name, " is not connected"));
  }
  shm::MemberOptions member;
  RETURN_IF_ERROR(CheckGroup(name, ranks, options_.rank, &member.member));
  if (ranks.back() >= options_.world || ranks.size() > kMaxRanks) {
    return absl::InvalidArgumentError(
        absl::StrCat("group ", name, " of ", ranks.size(), " ranks up to ",
                     ranks.back(), " of a world of ", options_.world,
                     "; a group has at most ", int{kMaxRanks}));
  }
  if (id < 0 || id >= kMaxCommunicators || !used_ids_.insert(id).second) {
    return absl::InvalidArgumentError(absl::StrCat(
        "group ", name, ": id ", id, " of transport ", options_.name,
        " is not in [0, ", int{kMaxCommunicators}, ") or used already"));
  }
  member.name = std::string(name);
  member.ranks.assign(ranks.begin(), ranks.end());
  member.deadline = options_.deadline;
  member.cancellation = options_.cancellation;
  for (int rank : ranks) {
    ASSIGN_OR_RETURN(auto region, RegionOf(rank), _ << "group " << name);
    auto* board = reinterpret_cast<shm::Board*>(region->data());
    member.boards.push_back(&board->groups[id]);
    member.regions.push_back(std::move(region));
  }
  return std::make_unique<shm::ShmCommunicator>(std::move(member));
}

}  // namespace weft::comm

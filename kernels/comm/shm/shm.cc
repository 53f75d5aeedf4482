#include "kernels/comm/shm/shm.h"

#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/comm/host_address.h"
#include "kernels/comm/host_rendezvous.h"
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

}  // namespace

absl::StatusOr<std::unique_ptr<ShmTransport>> ShmTransport::Create(
    ShmTransportOptions options) {
  RETURN_IF_ERROR(CheckOptions(options));
  ASSIGN_OR_RETURN(auto own, SharedRegion::Create(sizeof(shm::Board)),
                   _ << "transport " << options.name);
  HostAddress address;
  address.transport = "shm";
  address.stream = options.name;
  address.rank = options.rank;
  address.world = options.world;
  ASSIGN_OR_RETURN(HostRendezvous rendezvous,
                   HostRendezvous::Create(std::move(address), own->place(),
                                          {kMaxRanks, kMaxCommunicators}));
  return absl::WrapUnique(new ShmTransport(std::move(options), std::move(own),
                                           std::move(rendezvous)));
}

ShmTransport::ShmTransport(ShmTransportOptions options,
                           std::shared_ptr<SharedRegion> own,
                           HostRendezvous rendezvous)
    : options_(std::move(options)),
      rendezvous_(std::move(rendezvous)),
      regions_(options_.world) {
  regions_[options_.rank] = std::move(own);
}

absl::Status ShmTransport::Connect(absl::Span<const std::string> addresses) {
  return rendezvous_.Connect(addresses);
}

absl::StatusOr<std::shared_ptr<SharedRegion>> ShmTransport::RegionOf(int rank) {
  if (regions_[rank] != nullptr) return regions_[rank];
  ASSIGN_OR_RETURN(const std::string place, rendezvous_.PlaceOf(rank));
  ASSIGN_OR_RETURN(regions_[rank],
                   SharedRegion::Open(place, sizeof(shm::Board)),
                   _ << "transport " << options_.name << ", rank " << rank);
  return regions_[rank];
}

absl::StatusOr<std::unique_ptr<Communicator>> ShmTransport::CreateCommunicator(
    absl::string_view name, int id, absl::Span<const int> ranks) {
  shm::MemberOptions member;
  RETURN_IF_ERROR(rendezvous_.Admit(name, id, ranks, &member.member));
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

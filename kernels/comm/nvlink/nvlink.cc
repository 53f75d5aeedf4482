#include "kernels/comm/nvlink/nvlink.h"

#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/comm/cuda/communicator.h"
#include "kernels/comm/host_address.h"
#include "kernels/comm/host_rendezvous.h"
#include "kernels/comm/nvlink/nvlink_communicator.h"
#include "kernels/comm/nvlink/shared_board.h"
#include "kernels/device/cuda/core.h"

namespace weft::comm {
namespace {

static_assert(NvlinkTransport::kMaxRanks == nvlink::kMaxMembers, "");
static_assert(NvlinkTransport::kMaxCommunicators == nvlink::kMaxGroups, "");

absl::Status CheckOptions(const NvlinkTransportOptions& options) {
  if (options.world < 1 || options.rank < 0 || options.rank >= options.world) {
    return absl::InvalidArgumentError(
        absl::StrCat("transport ", options.name, ": rank ", options.rank,
                     " of a world of ", options.world));
  }
  if (options.deadline <= absl::ZeroDuration() || options.device == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        "transport ", options.name, " needs a deadline > 0 and a device, not ",
        absl::FormatDuration(options.deadline), " and ",
        options.device == nullptr ? "none" : "one"));
  }
  return absl::OkStatus();
}

absl::Status UseDevice(int ordinal) {
  return device::cuda::ToStatus(cudaSetDevice(ordinal), "choosing the device");
}

}  // namespace

absl::StatusOr<std::unique_ptr<NvlinkTransport>> NvlinkTransport::Create(
    NvlinkTransportOptions options) {
  RETURN_IF_ERROR(CheckOptions(options));
  RETURN_IF_ERROR(UseDevice(options.ordinal));
  ASSIGN_OR_RETURN(auto own, nvlink::SharedBoard::Create(),
                   _ << "transport " << options.name);
  HostAddress address;
  address.transport = "nvlink";
  address.stream = options.name;
  address.rank = options.rank;
  address.world = options.world;
  ASSIGN_OR_RETURN(HostRendezvous rendezvous,
                   HostRendezvous::Create(std::move(address), own->place(),
                                          {kMaxRanks, kMaxCommunicators}));
  cuda::Watchdog::Options watchdog;
  watchdog.transport = options.name;
  watchdog.rank = options.rank;
  watchdog.deadline = options.deadline;
  watchdog.cancellation = options.cancellation;
  watchdog.device = options.device;
  ASSIGN_OR_RETURN(auto dog, cuda::Watchdog::Create(std::move(watchdog)));
  auto link = std::make_shared<cuda::Link>(
      cuda::Link{std::move(dog), cuda::Staging(options.device)});
  return absl::WrapUnique(new NvlinkTransport(std::move(options),
                                              std::move(link), std::move(own),
                                              std::move(rendezvous)));
}

NvlinkTransport::NvlinkTransport(NvlinkTransportOptions options,
                                 std::shared_ptr<cuda::Link> link,
                                 std::shared_ptr<nvlink::SharedBoard> own,
                                 HostRendezvous rendezvous)
    : options_(std::move(options)),
      link_(std::move(link)),
      own_(std::move(own)),
      rendezvous_(std::move(rendezvous)),
      boards_(options_.world) {
  boards_[options_.rank] = own_;
}

NvlinkTransport::~NvlinkTransport() {
  link_->watchdog->Close();
  link_->staging.Free();
}

absl::Status NvlinkTransport::Connect(absl::Span<const std::string> addresses) {
  return rendezvous_.Connect(addresses);
}

absl::StatusOr<std::shared_ptr<nvlink::SharedBoard>> NvlinkTransport::BoardOf(
    int rank) {
  if (boards_[rank] != nullptr) return boards_[rank];
  ASSIGN_OR_RETURN(const std::string place, rendezvous_.PlaceOf(rank));
  ASSIGN_OR_RETURN(boards_[rank], nvlink::SharedBoard::Open(place),
                   _ << "transport " << options_.name << ", rank " << rank);
  return boards_[rank];
}

absl::StatusOr<std::unique_ptr<Communicator>>
NvlinkTransport::CreateCommunicator(absl::string_view name, int id,
                                    absl::Span<const int> ranks) {
  cuda::GroupOptions group;
  RETURN_IF_ERROR(rendezvous_.Admit(name, id, ranks, &group.rank));
  group.name = std::string(name);
  group.ranks.assign(ranks.begin(), ranks.end());
  RETURN_IF_ERROR(UseDevice(options_.ordinal));
  std::vector<nvlink::BoardView> views;
  for (int rank : ranks) {
    ASSIGN_OR_RETURN(auto board, BoardOf(rank), _ << "group " << name);
    views.push_back(
        {board, &board->host()->groups[id], &board->device()->groups[id]});
  }
  ASSIGN_OR_RETURN(
      std::unique_ptr<Communicator> communicator,
      nvlink::NvlinkCommunicator::Create(link_, std::move(group),
                                         options_.ordinal, std::move(views)));
  return communicator;
}

absl::Status NvlinkTransport::status() const {
  return link_->watchdog->status();
}

}  // namespace weft::comm

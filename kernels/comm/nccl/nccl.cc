#include "kernels/comm/nccl/nccl.h"

#include <nccl.h>

#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/comm/collective.h"
#include "kernels/comm/cuda/communicator.h"
#include "kernels/comm/nccl/nccl_address.h"
#include "kernels/comm/nccl/nccl_communicator.h"
#include "kernels/comm/nccl/nccl_error.h"
#include "kernels/device/cuda/core.h"

namespace weft::comm {
namespace {

// NVLink multicast can put the GPUs of a whole host out of service. NCCL reads
// the variable once, before its first communicator.
void TurnMulticastOff() {
  static const bool done = ::setenv("NCCL_NVLS_ENABLE", "0", 1) == 0;
  (void)done;
}

absl::Status CheckOptions(const NcclTransportOptions& options) {
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

absl::StatusOr<nccl::Address> MakeAddress(const NcclTransportOptions& options) {
  nccl::Address address;
  address.stream = options.name;
  address.rank = options.rank;
  address.world = options.world;
  RETURN_IF_ERROR(nccl::ToStatus(ncclGetVersion(&address.version),
                                 "asking for the version", nullptr));
  for (int group : options.rooted_groups) {
    ncclUniqueId id;
    RETURN_IF_ERROR(
        nccl::ToStatus(ncclGetUniqueId(&id), "making a unique id", nullptr));
    address.unique_ids[group] = std::string(id.internal, sizeof(id.internal));
  }
  return address;
}

}  // namespace

absl::StatusOr<std::unique_ptr<NcclTransport>> NcclTransport::Create(
    NcclTransportOptions options) {
  RETURN_IF_ERROR(CheckOptions(options));
  TurnMulticastOff();
  ASSIGN_OR_RETURN(
      const nccl::Address address, MakeAddress(options),
      _ << "transport " << options.name << " of rank " << options.rank);
  cuda::Watchdog::Options watchdog;
  watchdog.transport = options.name;
  watchdog.rank = options.rank;
  watchdog.deadline = options.deadline;
  watchdog.cancellation = options.cancellation;
  watchdog.device = options.device;
  ASSIGN_OR_RETURN(auto dog, cuda::Watchdog::Create(std::move(watchdog)));
  auto link = std::make_shared<cuda::Link>(
      cuda::Link{std::move(dog), cuda::Staging(options.device)});
  return absl::WrapUnique(new NcclTransport(std::move(options), std::move(link),
                                            nccl::FormatAddress(address)));
}

NcclTransport::NcclTransport(NcclTransportOptions options,
                             std::shared_ptr<cuda::Link> link,
                             std::string address)
    : options_(std::move(options)),
      link_(std::move(link)),
      address_(std::move(address)) {}

NcclTransport::~NcclTransport() {
  link_->watchdog->Close();
  link_->staging.Free();
}

absl::Status NcclTransport::Connect(absl::Span<const std::string> addresses) {
  if (is_connected_) {
    return absl::FailedPreconditionError(
        absl::StrCat("transport ", options_.name, " is connected already"));
  }
  if (static_cast<int>(addresses.size()) != options_.world) {
    return absl::InvalidArgumentError(
        absl::StrCat("transport ", options_.name, ": ", addresses.size(),
                     " addresses for a world of ", options_.world));
  }
  nccl::Address expected;
  expected.stream = options_.name;
  expected.world = options_.world;
  RETURN_IF_ERROR(nccl::ToStatus(ncclGetVersion(&expected.version),
                                 "asking for the version", nullptr));
  std::vector<std::map<int, std::string>> unique_ids;
  for (int peer = 0; peer < options_.world; ++peer) {
    expected.rank = peer;
    ASSIGN_OR_RETURN(
        nccl::Address address, nccl::ParseAddress(addresses[peer], expected),
        _ << "transport " << options_.name << " of rank " << options_.rank);
    unique_ids.push_back(std::move(address.unique_ids));
  }
  unique_ids_ = std::move(unique_ids);
  is_connected_ = true;
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Communicator>> NcclTransport::CreateCommunicator(
    absl::string_view name, int id, absl::Span<const int> ranks) {
  if (!is_connected_) {
    return absl::FailedPreconditionError(absl::StrCat(
        "group ", name, ": transport ", options_.name, " is not connected"));
  }
  cuda::GroupOptions group;
  RETURN_IF_ERROR(CheckGroup(name, ranks, options_.rank, &group.rank));
  if (ranks.back() >= options_.world) {
    return absl::InvalidArgumentError(
        absl::StrCat("group ", name, " names rank ", ranks.back(),
                     " of a world of ", options_.world));
  }
  if (!used_ids_.insert(id).second) {
    return absl::InvalidArgumentError(
        absl::StrCat("group ", name, ": id ", id, " of transport ",
                     options_.name, " is used already; an id is used once"));
  }
  ncclUniqueId unique = {};
  if (ranks.size() > 1) {
    const auto found = unique_ids_[ranks[0]].find(id);
    if (found == unique_ids_[ranks[0]].end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("group ", name, ": rank ", ranks[0],
                       ", the lowest member, does not root group ", id,
                       " of transport ", options_.name));
    }
    std::memcpy(unique.internal, found->second.data(), sizeof(unique.internal));
  }
  group.name = std::string(name);
  group.ranks.assign(ranks.begin(), ranks.end());
  RETURN_IF_ERROR(device::cuda::ToStatus(cudaSetDevice(options_.ordinal),
                                         "choosing the device"));
  ASSIGN_OR_RETURN(
      std::unique_ptr<Communicator> communicator,
      nccl::NcclCommunicator::Create(link_, std::move(group), unique),
      _ << "group " << name << " on rank " << options_.rank);
  return communicator;
}

absl::Status NcclTransport::status() const { return link_->watchdog->status(); }

}  // namespace weft::comm

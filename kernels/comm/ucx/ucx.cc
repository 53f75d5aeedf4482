#include "kernels/comm/ucx/ucx.h"

#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/comm/collective.h"
#include "kernels/comm/ucx/ucx_communicator.h"
#include "kernels/comm/ucx/ucx_link.h"
#include "kernels/comm/ucx/ucx_worker.h"

namespace weft::comm {
namespace {

absl::Status CheckOptions(const UcxTransportOptions& options) {
  if (options.world < 1 || options.world > UcxTransport::kMaxRanks ||
      options.rank < 0 || options.rank >= options.world) {
    return absl::InvalidArgumentError(
        absl::StrCat("transport ", options.name, ": rank ", options.rank,
                     " of a world of ", options.world, "; a world has 1 to ",
                     UcxTransport::kMaxRanks, " ranks"));
  }
  if (options.deadline <= absl::ZeroDuration() || options.device == nullptr ||
      options.max_message_bytes < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "transport ", options.name,
        " needs a deadline > 0, a device and max_message_bytes >= 1, not ",
        absl::FormatDuration(options.deadline), ", ",
        options.device == nullptr ? "none" : "one", " and ",
        options.max_message_bytes));
  }
  return absl::OkStatus();
}

// What an address starts with: ranks that do not fit together are found before
// they talk.
std::string AddressHeader(const UcxTransportOptions& options, int rank) {
  return absl::StrCat("weft.ucx.1 stream=", options.name, " rank=", rank,
                      " world=", options.world,
                      " message=", options.max_message_bytes, "\n");
}

}  // namespace

absl::StatusOr<std::unique_ptr<UcxTransport>> UcxTransport::Create(
    UcxTransportOptions options) {
  RETURN_IF_ERROR(CheckOptions(options));
  ASSIGN_OR_RETURN(
      auto worker, ucx::UcxWorker::Create(options.rank, options.world),
      _ << "transport " << options.name << " of rank " << options.rank);
  ucx::LinkOptions link;
  link.name = options.name;
  link.deadline = options.deadline;
  link.cancellation = options.cancellation;
  link.device = options.device;
  link.max_message_bytes = options.max_message_bytes;
  return absl::WrapUnique(new UcxTransport(
      std::move(options),
      std::make_shared<ucx::UcxLink>(std::move(worker), std::move(link))));
}

UcxTransport::UcxTransport(UcxTransportOptions options,
                           std::shared_ptr<ucx::UcxLink> link)
    : options_(std::move(options)),
      link_(std::move(link)),
      address_(absl::StrCat(AddressHeader(options_, options_.rank),
                            link_->worker().address())),
      used_ids_(kMaxCommunicators, false) {}

UcxTransport::~UcxTransport() { link_->Close(); }

const std::string& UcxTransport::address() const { return address_; }

absl::Status UcxTransport::Connect(absl::Span<const std::string> addresses) {
  if (link_->worker().is_connected()) {
    return absl::FailedPreconditionError(
        absl::StrCat("transport ", options_.name, " is connected already"));
  }
  if (static_cast<int>(addresses.size()) != options_.world) {
    return absl::InvalidArgumentError(
        absl::StrCat("transport ", options_.name, ": ", addresses.size(),
                     " addresses for a world of ", options_.world));
  }
  std::vector<std::string> bare;
  for (int peer = 0; peer < options_.world; ++peer) {
    const std::string header = AddressHeader(options_, peer);
    if (!absl::StartsWith(addresses[peer], header)) {
      return absl::InvalidArgumentError(
          absl::StrCat("transport ", options_.name, " of rank ", options_.rank,
                       ": the address in place ", peer, " is not one of \"",
                       header.substr(0, header.size() - 1), "\""));
    }
    bare.push_back(addresses[peer].substr(header.size()));
  }
  return Annotate(link_->worker().Connect(bare),
                  absl::StrCat("transport ", options_.name));
}

absl::StatusOr<std::unique_ptr<Communicator>> UcxTransport::CreateCommunicator(
    absl::string_view name, int id, absl::Span<const int> ranks) {
  if (!link_->worker().is_connected()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "group ", name, ": transport ", options_.name, " is not connected"));
  }
  ucx::GroupOptions group;
  RETURN_IF_ERROR(CheckGroup(name, ranks, options_.rank, &group.rank));
  if (ranks.back() >= options_.world) {
    return absl::InvalidArgumentError(
        absl::StrCat("group ", name, " names rank ", ranks.back(),
                     " of a world of ", options_.world));
  }
  if (id < 0 || id >= kMaxCommunicators) {
    return absl::InvalidArgumentError(
        absl::StrCat("group ", name, ": id ", id, " of transport ",
                     options_.name, " is not in [0, ", kMaxCommunicators, ")"));
  }
  if (used_ids_[id]) {
    return absl::InvalidArgumentError(
        absl::StrCat("group ", name, ": id ", id, " of transport ",
                     options_.name, " is used already; an id is used once"));
  }
  used_ids_[id] = true;
  group.name = std::string(name);
  group.id = id;
  group.ranks.assign(ranks.begin(), ranks.end());
  return std::make_unique<ucx::UcxCommunicator>(link_, std::move(group));
}

absl::Status UcxTransport::status() const { return link_->status(); }

}  // namespace weft::comm

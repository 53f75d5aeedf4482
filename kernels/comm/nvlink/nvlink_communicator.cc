#include "kernels/comm/nvlink/nvlink_communicator.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/comm/bytes.h"
#include "kernels/device/cuda/core.h"

namespace weft::comm::nvlink {
namespace {

using device::cuda::ToStatus;

// What an abort adds to the rounds that are waited for: more than are ever
// enqueued at once.
constexpr uint32_t kBeyond = uint32_t{1} << 30;

std::vector<GroupBoard*> HostBoards(const std::vector<BoardView>& boards) {
  std::vector<GroupBoard*> hosts;
  for (const BoardView& board : boards) hosts.push_back(board.host);
  return hosts;
}

absl::Status CopyAsync(void* to, const void* from, int64_t bytes,
                       cudaStream_t stream) {
  if (bytes == 0 || to == from) return absl::OkStatus();
  return ToStatus(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream),
                  "fetching from another rank");
}

// The bytes of a trivial value, and back.
template <typename T>
absl::string_view BytesOf(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(T)};
}
template <typename T>
absl::StatusOr<std::vector<T>> ValuesOf(const std::string& bytes) {
  if (bytes.size() % sizeof(T) != 0) {
    return absl::InternalError(absl::StrCat(
        "a letter of ", bytes.size(), " bytes has no whole number of records"));
  }
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

}  // namespace

NvlinkCommunicator::NvlinkCommunicator(std::shared_ptr<cuda::Link> link,
                                       cuda::GroupOptions group,
                                       std::unique_ptr<cuda::Progress> progress,
                                       int ordinal,
                                       std::vector<BoardView> boards)
    : CudaCommunicator(std::move(link), std::move(group), std::move(progress)),
      ordinal_(ordinal),
      boards_(std::move(boards)),
      letters_(HostBoards(boards_), rank()) {}

absl::StatusOr<std::unique_ptr<NvlinkCommunicator>> NvlinkCommunicator::Create(
    std::shared_ptr<cuda::Link> link, cuda::GroupOptions group, int ordinal,
    std::vector<BoardView> boards) {
  ASSIGN_OR_RETURN(auto progress, cuda::Progress::Create());
  auto communicator = absl::WrapUnique(
      new NvlinkCommunicator(std::move(link), std::move(group),
                             std::move(progress), ordinal, std::move(boards)));
  if (communicator->size() > 1) {
    communicator->link().watchdog->Add(communicator.get());
  }
  return communicator;
}

NvlinkCommunicator::~NvlinkCommunicator() { link().watchdog->Remove(this); }

absl::StatusOr<std::vector<std::string>> NvlinkCommunicator::Tell(
    absl::string_view mine) {
  const cuda::Watchdog& watchdog = *link().watchdog;
  const auto start = std::chrono::steady_clock::now();
  auto told = letters_.Exchange(mine, [&] {
    return watchdog.CheckWait(start, "hearing from all ranks");
  });
  if (told.ok()) return told;
  return absl::Status(told.status().code(),
                      absl::StrCat(told.status().message(), "; not heard from ",
                                   DescribeRanks(MissingRanks())));
}

absl::Status NvlinkCommunicator::RegisterMemory(
    absl::Span<const device::Buffer* const> buffers) {
  RETURN_IF_ERROR(link().watchdog->status());
  if (size() == 1) return absl::OkStatus();
  if (!peers_.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("group ", name(), ": memory is registered once"));
  }
  std::string mine;
  for (const device::Buffer* buffer : buffers) {
    ASSIGN_OR_RETURN(const MemoryHandle handle,
                     ExportMemory(*buffer, ordinal_));
    absl::StrAppend(&mine, BytesOf(handle));
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> all, Tell(mine),
                   _ << "group " << name() << ", registering memory");
  for (int member = 0; member < size(); ++member) {
    auto& opened = peers_.emplace_back();
    if (member == rank()) continue;
    ASSIGN_OR_RETURN(const std::vector<MemoryHandle> handles,
                     ValuesOf<MemoryHandle>(all[member]));
    for (const MemoryHandle& handle : handles) {
      ASSIGN_OR_RETURN(opened.emplace_back(), OpenMemory(handle),
                       _ << "group " << name() << ", rank " << ranks()[member]);
    }
  }
  registered_.assign(buffers.begin(), buffers.end());
  return absl::OkStatus();
}

NvlinkCommunicator::Location NvlinkCommunicator::Locate(
    const void* data) const {
  Location location;
  for (size_t i = 0; i < registered_.size(); ++i) {
    const std::byte* const begin = registered_[i]->data();
    const std::byte* const at = static_cast<const std::byte*>(data);
    if (at < begin || at >= begin + registered_[i]->bytes()) continue;
    location.buffer = static_cast<int32_t>(i);
    location.offset = at - begin;
  }
  return location;
}

absl::StatusOr<const NvlinkCommunicator::Places*> NvlinkCommunicator::PlacesOf(
    Part part, const void* send, int64_t bytes) {
  const CollectiveId& id = running();
  const Call call = {id.kind,         part,         id.tag.op,
                     id.tag.op_index, id.tag.layer, id.tag.microbatch,
                     bytes,           send};
  const auto known = places_.find(call);
  if (known != places_.end()) return &known->second;
  Location mine = Locate(send);
  mine.kind = static_cast<int32_t>(id.kind);
  mine.part = part;
  mine.op_index = id.tag.op_index;
  mine.bytes = bytes;
  ASSIGN_OR_RETURN(Places places, AskForPlaces(mine, send));
  return &places_.emplace(call, std::move(places)).first->second;
}

absl::StatusOr<NvlinkCommunicator::Places> NvlinkCommunicator::AskForPlaces(
    const Location& mine, const void* send) {
  ASSIGN_OR_RETURN(const std::vector<std::string> all, Tell(BytesOf(mine)));
  Places places(size(), nullptr);
  for (int member = 0; member < size(); ++member) {
    ASSIGN_OR_RETURN(const std::vector<Location> told,
                     ValuesOf<Location>(all[member]));
    if (told.size() != 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("rank ", ranks()[member], " is not at a collective"));
    }
    RETURN_IF_ERROR(CheckSameCall(mine, told[0], member));
    if (told[0].buffer < 0) continue;
    // The own memory is not fetched, but known to be registered.
    places[member] = member == rank() ? static_cast<const std::byte*>(send)
                                      : peers_[member][told[0].buffer]->data() +
                                            told[0].offset;
  }
  return places;
}

absl::Status NvlinkCommunicator::CheckSameCall(const Location& mine,
                                               const Location& theirs,
                                               int member) const {
  if (theirs.kind == mine.kind && theirs.part == mine.part &&
      theirs.op_index == mine.op_index && theirs.bytes == mine.bytes) {
    return absl::OkStatus();
  }
  const auto describe = [](const Location& call) {
    return absl::StrCat(Name(static_cast<CollectiveKind>(call.kind)), " of op ",
                        call.op_index, ", ", call.bytes, " bytes");
  };
  return absl::InvalidArgumentError(
      absl::StrCat("ranks disagree: ", describe(mine), ", but rank ",
                   ranks()[member], " has ", describe(theirs)));
}

absl::Status NvlinkCommunicator::Round(cudaStream_t stream, Fetch fetch) {
  if (is_captured()) return CapturedRound(stream, fetch);
  const uint32_t round = ++rounds_;
  GroupBoard& own = *boards_[rank()].device;
  for (int d = 1; d < size(); ++d) {
    GroupBoard& peer = *boards_[(rank() + d) % size()].device;
    flags_.Write(round, &peer.ready[rank()].value);
  }
  // Each rank begins with another peer.
  for (int d = 1; d < size(); ++d) {
    const int member = (rank() + d) % size();
    flags_.WaitFor(round, &own.ready[member].value);
    RETURN_IF_ERROR(flags_.Enqueue(stream));
    RETURN_IF_ERROR(fetch(member));
    GroupBoard& peer = *boards_[member].device;
    flags_.Write(round, &peer.consumed[rank()].value);
  }
  for (int d = 1; d < size(); ++d) {
    const int member = (rank() + d) % size();
    flags_.WaitFor(round, &own.consumed[member].value);
  }
  return flags_.Enqueue(stream);
}

absl::Status NvlinkCommunicator::CapturedRound(cudaStream_t stream,
                                               Fetch fetch) {
  constexpr uint32_t kSaid = 1, kTaken = 0;
  GroupBoard& own = *boards_[rank()].device;
  for (int d = 1; d < size(); ++d) {
    GroupBoard& peer = *boards_[(rank() + d) % size()].device;
    flags_.Write(kSaid, &peer.replay_ready[rank()].value);
  }
  for (int d = 1; d < size(); ++d) {
    const int member = (rank() + d) % size();
    flags_.WaitFor(kSaid, &own.replay_ready[member].value);
    flags_.Write(kTaken, &own.replay_ready[member].value);
    RETURN_IF_ERROR(flags_.Enqueue(stream));
    RETURN_IF_ERROR(fetch(member));
    GroupBoard& peer = *boards_[member].device;
    flags_.Write(kSaid, &peer.replay_consumed[rank()].value);
  }
  for (int d = 1; d < size(); ++d) {
    const int member = (rank() + d) % size();
    flags_.WaitFor(kSaid, &own.replay_consumed[member].value);
    flags_.Write(kTaken, &own.replay_consumed[member].value);
  }
  return flags_.Enqueue(stream);
}

absl::Status NvlinkCommunicator::RoundsByWindow(
    const void* send, bool sends, int64_t bytes, cudaStream_t stream,
    absl::FunctionRef<absl::Status(int member, const void* window, int64_t at,
                                   int64_t bytes)>
        fetch) {
  for (int64_t at = 0; at < bytes; at += kWindowBytes) {
    const int64_t size = std::min(kWindowBytes, bytes - at);
    if (sends) {
      RETURN_IF_ERROR(CopyAsync(boards_[rank()].device->window, At(send, at),
                                size, stream));
    }
    RETURN_IF_ERROR(Round(stream, [&](int member) {
      return fetch(member, boards_[member].device->window, at, size);
    }));
  }
  return absl::OkStatus();
}

absl::Status NvlinkCommunicator::Gather(const void* send, void* recv,
                                        int64_t bytes, cudaStream_t stream) {
  ASSIGN_OR_RETURN(const Places* const places,
                   PlacesOf(Part::kGather, send, bytes));
  RETURN_IF_ERROR(CopyAsync(At(recv, rank() * bytes), send, bytes, stream));
  if (std::count(places->begin(), places->end(), nullptr) == 0) {
    return Round(stream, [&](int member) {
      return CopyAsync(At(recv, member * bytes), (*places)[member], bytes,
                       stream);
    });
  }
  return RoundsByWindow(
      send, /*sends=*/true, bytes, stream,
      [&](int member, const void* window, int64_t at, int64_t size) {
        return CopyAsync(At(recv, member * bytes + at), window, size, stream);
      });
}

absl::Status NvlinkCommunicator::Spread(void* data, int64_t bytes, int root,
                                        cudaStream_t stream) {
  ASSIGN_OR_RETURN(const Places* const places,
                   PlacesOf(Part::kSpread, data, bytes));
  if ((*places)[root] != nullptr) {
    return Round(stream, [&](int member) {
      return member == root ? CopyAsync(data, (*places)[root], bytes, stream)
                            : absl::OkStatus();
    });
  }
  return RoundsByWindow(
      data, /*sends=*/rank() == root, bytes, stream,
      [&](int member, const void* window, int64_t at, int64_t size) {
        return member == root ? CopyAsync(At(data, at), window, size, stream)
                              : absl::OkStatus();
      });
}

absl::Status NvlinkCommunicator::Scatter(const void* send, void* others,
                                         int64_t bytes, cudaStream_t stream) {
  ASSIGN_OR_RETURN(const Places* const places,
                   PlacesOf(Part::kScatter, send, bytes));
  for (int member = 0; member < size(); ++member) {
    if ((*places)[member] != nullptr) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "what rank ", ranks()[member], " sends lies in no registered memory"));
  }
  return Round(stream, [&](int member) {
    const int place = member < rank() ? member : member - 1;
    return CopyAsync(At(others, place * bytes),
                     (*places)[member] + rank() * bytes, bytes, stream);
  });
}

absl::Status NvlinkCommunicator::Exchange(const void* send,
                                          absl::Span<const Segment>, void* recv,
                                          absl::Span<const Segment> recvs,
                                          cudaStream_t stream) {
  ASSIGN_OR_RETURN(const Places* const places,
                   PlacesOf(Part::kExchange, send, 0));
  for (const Segment& segment : recvs) {
    if (segment.peer == rank() || segment.bytes == 0) continue;
    if (segment.peer_offset >= 0 && (*places)[segment.peer] != nullptr)
      continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "a segment of ", segment.bytes, " bytes of rank ",
        ranks()[segment.peer],
        segment.peer_offset < 0 ? " does not say where it lies there"
                                : " lies in no registered memory"));
  }
  return Round(stream, [&](int member) {
    return FetchSegments(member, (*places)[member], recvs, recv, stream);
  });
}

absl::Status NvlinkCommunicator::FetchSegments(int member,
                                               const std::byte* there,
                                               absl::Span<const Segment> recvs,
                                               void* recv,
                                               cudaStream_t stream) {
  batch_.Clear();
  for (const Segment& segment : recvs) {
    if (segment.peer != member || segment.bytes == 0) continue;
    batch_.Add(At(recv, segment.offset), there + segment.peer_offset,
               segment.bytes);
  }
  return is_captured() ? batch_.EnqueueEach(stream) : batch_.Enqueue(stream);
}

absl::Status NvlinkCommunicator::Meet(cudaStream_t stream) {
  return Round(stream, [](int) { return absl::OkStatus(); });
}

std::vector<int> NvlinkCommunicator::MissingRanks() {
  std::vector<int> missing;
  const auto add_if = [&](auto is_missing) {
    if (!missing.empty()) return;
    for (int member = 0; member < size(); ++member) {
      if (member != rank() && is_missing(member)) {
        missing.push_back(ranks()[member]);
      }
    }
  };
  for (int member : letters_.MissingMembers()) {
    missing.push_back(ranks()[member]);
  }
  // The round that runs is the one after the last that all have finished.
  const GroupBoard& own = *boards_[rank()].host;
  uint32_t round = rounds_;
  for (int member = 0; member < size(); ++member) {
    const uint32_t consumed = Load(own.consumed[member]);
    if (member != rank() && !HasReached(consumed, round)) round = consumed;
  }
  if (round++ == rounds_) return missing;  // nothing waits
  add_if([&](int m) { return !HasReached(Load(own.ready[m]), round); });
  add_if([&](int m) { return !HasReached(Load(own.consumed[m]), round); });
  return missing;
}

void NvlinkCommunicator::Abort() {
  GroupBoard& own = *boards_[rank()].host;
  const uint32_t beyond = rounds_ + kBeyond;
  for (int member = 0; member < size(); ++member) {
    Store(&own.ready[member], beyond);
    Store(&own.consumed[member], beyond);
    // Taken back by the stream, and so stored again until all graphs are done.
    Store(&own.replay_ready[member], 1);
    Store(&own.replay_consumed[member], 1);
  }
}

}  // namespace weft::comm::nvlink

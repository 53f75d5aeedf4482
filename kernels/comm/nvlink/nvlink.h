// Collectives of CUDA streams between the GPUs of one host: a rank fetches from
// its peers' memory with copy engines, which cost what computes beside next to
// nothing.
//
//   // On each rank, for each stream that communicates:
//   NvlinkTransportOptions options;
//   options.name = "ep";
//   options.rank = rank;
//   options.world = world;
//   options.device = device.get();
//   options.ordinal = 0;
//   ASSIGN_OR_RETURN(auto transport, NvlinkTransport::Create(options));
//   // Exchange transport->address() with all ranks by some other means, then:
//   RETURN_IF_ERROR(transport->Connect(addresses));
//   ASSIGN_OR_RETURN(auto ep, transport->CreateCommunicator("ep", 1, {2, 3}));
//   RETURN_IF_ERROR(ep->RegisterMemory({arena.get()}));
#ifndef WEFT_KERNELS_COMM_NVLINK_NVLINK_H_
#define WEFT_KERNELS_COMM_NVLINK_NVLINK_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kernels/comm/cancellation.h"
#include "kernels/comm/communicator.h"
#include "kernels/comm/host_rendezvous.h"
#include "kernels/device/device.h"

namespace weft::comm {
namespace cuda {
struct Link;
}  // namespace cuda
namespace nvlink {
class SharedBoard;
}  // namespace nvlink

struct NvlinkTransportOptions {
  // Of the stream that it serves; ranks connect transports of one name.
  std::string name;
  int rank = 0;
  int world = 1;
  // How long one collective may take, from when it was enqueued or the one
  // before it had run.
  absl::Duration deadline = absl::Seconds(60);
  // Stops collectives that wait. Borrowed; may be null.
  Cancellation* cancellation = nullptr;
  // A CUDA device, and its number among those that this process sees. Staging
  // memory is allocated from it, and errors fail it. Borrowed.
  device::Device* device = nullptr;
  int ordinal = 0;
};

// The communicators of one stream.
//
// Guarantees, beyond those of Communicator:
// - Collectives return when they are enqueued. What goes wrong later fails the
//   device, with an error that names the collective and the ranks that did not
//   come, and ends what waits on the GPU.
// - After the first error of any communicator the transport is unusable: every
//   later collective returns that error. Data that its streams write while they
//   drain has no meaning, on this rank and on its peers.
// - Ranks whose arguments differ are told so where hosts ask each other (see
//   below). Else they move wrong bytes or meet their deadlines.
//
// What a rank sends lies in memory that its communicator has registered; only
// AllGather and Broadcast take other memory, device's or pinned host memory,
// through a narrow window in host memory. Received segments of an AllToAllV say
// where they lie at the peer.
//
// The first time that a call is seen, hosts ask each other where their send
// buffers lie, and so wait for each other. Calls are told apart by kind, tag
// and send buffer (AllToAllV) or also by size (others): where these are on one
// rank as in an earlier call, they are so on all ranks, and the buffers lie
// where they did.
//
// Collectives may be captured into a CUDA graph, by all ranks alike and once
// memory is registered and staging reserved; the graph may be replayed any
// number of times, between and among other collectives, in the same order on
// all ranks. Nothing that a replay needs changes from one to the next.
// Capturing asks the other hosts, as a first call does. A replay that waits for
// a rank that does not come ends when the transport fails, by its token or
// another collective's deadline: it has none of its own.
//
// Requires: its communicators are called by one thread at a time (the one that
// launches on the stream); the destructors run while no collective does, and
// once those enqueued have run or the device has failed and its streams have
// drained. Memory that is registered outlives the streams of all ranks that
// fetch from it: they have met, or the job has failed.
class NvlinkTransport {
 public:
  // The largest number of ranks in a group, and of communicators in a
  // transport's life.
  static constexpr int kMaxRanks = 16;
  static constexpr int kMaxCommunicators = 8;

  static absl::StatusOr<std::unique_ptr<NvlinkTransport>> Create(
      NvlinkTransportOptions options);
  ~NvlinkTransport();

  NvlinkTransport(const NvlinkTransport&) = delete;
  NvlinkTransport& operator=(const NvlinkTransport&) = delete;

  // What Connect() of the other ranks takes. Text.
  const std::string& address() const { return rendezvous_.address(); }

  // `addresses` of all ranks, by rank. Once.
  absl::Status Connect(absl::Span<const std::string> addresses);

  // The communicator of this rank in the group of `ranks` (of the world,
  // ascending). All members give the same `id`; groups that share a rank need
  // different ids. An id is used once in the life of a transport. Called when
  // connected. INVALID_ARGUMENT when the address of a member is not that of
  // this stream's transport of its rank, on this host. The communicator may
  // outlive the transport; its collectives then return FAILED_PRECONDITION.
  absl::StatusOr<std::unique_ptr<Communicator>> CreateCommunicator(
      absl::string_view name, int id, absl::Span<const int> ranks);

  // The first error of any communicator, or OK.
  absl::Status status() const;

 private:
  NvlinkTransport(NvlinkTransportOptions options,
                  std::shared_ptr<cuda::Link> link,
                  std::shared_ptr<nvlink::SharedBoard> own,
                  HostRendezvous rendezvous);

  absl::StatusOr<std::shared_ptr<nvlink::SharedBoard>> BoardOf(int rank);

  const NvlinkTransportOptions options_;
  // Shared with the communicators, which may outlive the transport.
  const std::shared_ptr<cuda::Link> link_;
  const std::shared_ptr<nvlink::SharedBoard> own_;
  HostRendezvous rendezvous_;
  // By rank, of those this rank shares a group with.
  std::vector<std::shared_ptr<nvlink::SharedBoard>> boards_;
};

}  // namespace weft::comm

#endif  // WEFT_KERNELS_COMM_NVLINK_NVLINK_H_

// Collectives of CUDA streams over NCCL: inside a host and between hosts.
//
//   // On each rank, for each stream that communicates:
//   NcclTransportOptions options;
//   options.name = "ep";
//   options.rank = rank;
//   options.world = world;
//   options.device = device.get();
//   options.ordinal = 0;
//   options.rooted_groups = {1};  // on the lowest member of group 1
//   ASSIGN_OR_RETURN(auto transport, NcclTransport::Create(options));
//   // Exchange transport->address() with all ranks by some other means, then:
//   RETURN_IF_ERROR(transport->Connect(addresses));
//   ASSIGN_OR_RETURN(auto ep, transport->CreateCommunicator("ep", 1, {2, 3}));
#ifndef WEFT_KERNELS_COMM_NCCL_NCCL_H_
#define WEFT_KERNELS_COMM_NCCL_NCCL_H_

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kernels/comm/cancellation.h"
#include "kernels/comm/communicator.h"
#include "kernels/device/device.h"

namespace weft::comm {
namespace cuda {
struct Link;
}  // namespace cuda

struct NcclTransportOptions {
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
  // Ids of the groups of two or more whose lowest member this rank is. Each
  // must be created on all its members, once; a thread of NCCL waits for them
  // until then.
  std::vector<int> rooted_groups;
};

// The communicators of one stream.
//
// Guarantees, beyond those of Communicator:
// - Collectives return when they are enqueued. What goes wrong later fails the
//   device, with an error that names the collective, and ends what waits on the
//   GPU.
// - After the first error of any communicator the transport is unusable: every
//   later collective returns that error.
// - Which peer keeps a rank waiting is not known. Ranks whose arguments differ
//   move wrong bytes or meet their deadlines.
// - NVLink multicast (NVLS) is not used: the environment's NCCL_NVLS_ENABLE is
//   set to 0.
//
// Data is device memory; that of AllGather and Broadcast may also be pinned
// host memory.
//
// Requires: its communicators are called by one thread at a time (the one that
// launches on the stream); the destructors run while no collective does, and
// once those enqueued have run or the device has failed.
class NcclTransport {
 public:
  static absl::StatusOr<std::unique_ptr<NcclTransport>> Create(
      NcclTransportOptions options);
  ~NcclTransport();

  NcclTransport(const NcclTransport&) = delete;
  NcclTransport& operator=(const NcclTransport&) = delete;

  // What Connect() of the other ranks takes. Text.
  const std::string& address() const { return address_; }

  // `addresses` of all ranks, by rank. Once. INVALID_ARGUMENT when they are not
  // those of this stream's transports of these ranks and of one version of
  // NCCL.
  absl::Status Connect(absl::Span<const std::string> addresses);

  // The communicator of this rank in the group of `ranks` (of the world,
  // ascending). All members give the same `id`; groups that share a rank need
  // different ids. An id is used once in the life of a transport. Called when
  // connected, by all members, which create their groups in one order: it
  // returns when all have come. The communicator may outlive the transport; its
  // collectives then return FAILED_PRECONDITION.
  absl::StatusOr<std::unique_ptr<Communicator>> CreateCommunicator(
      absl::string_view name, int id, absl::Span<const int> ranks);

  // The first error of any communicator, or OK.
  absl::Status status() const;

 private:
  NcclTransport(NcclTransportOptions options, std::shared_ptr<cuda::Link> link,
                std::string address);

  const NcclTransportOptions options_;
  // Shared with the communicators, which may outlive the transport.
  const std::shared_ptr<cuda::Link> link_;
  const std::string address_;
  bool is_connected_ = false;
  // Of each rank: what its address says of the groups it roots.
  std::vector<std::map<int, std::string>> unique_ids_;
  std::set<int> used_ids_;
};

}  // namespace weft::comm

#endif  // WEFT_KERNELS_COMM_NCCL_NCCL_H_

// Collectives of CPU streams between processes of one host: a rank copies from
// windows of its peers' memory, which all of them map once.
//
//   // On each rank, for each stream that communicates:
//   ShmTransportOptions options;
//   options.name = "ep";
//   options.rank = rank;
//   options.world = world;
//   ASSIGN_OR_RETURN(auto transport, ShmTransport::Create(options));
//   // Exchange transport->address() with all ranks by some other means, then:
//   RETURN_IF_ERROR(transport->Connect(addresses));
//   ASSIGN_OR_RETURN(auto ep, transport->CreateCommunicator("ep", 1, {2, 3}));
#ifndef WEFT_KERNELS_COMM_SHM_SHM_H_
#define WEFT_KERNELS_COMM_SHM_SHM_H_

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
#include "kernels/comm/shared_region.h"

namespace weft::comm {

struct ShmTransportOptions {
  // Of the stream that it serves; ranks connect transports of one name.
  std::string name;
  int rank = 0;
  int world = 1;
  // How long one collective may take.
  absl::Duration deadline = absl::Seconds(60);
  // Stops collectives that wait. Borrowed; may be null.
  Cancellation* cancellation = nullptr;
};

// The communicators of one stream.
//
// Guarantees, beyond those of Communicator:
// - A collective that ranks call differently (other kind, size, dtype, root,
//   op, layer or microbatch; segments of differing sizes) fails with
//   INVALID_ARGUMENT naming two ranks and what each called.
// - When one rank's collective fails, the others' fail with the same code as
//   soon as they get there: a group does not outlive its first error.
// - Nothing is allocated once a communicator exists. Waiting threads sleep.
//
// Requires: one thread at a time. Communicators may outlive the transport.
class ShmTransport {
 public:
  // The largest number of ranks in a group, and of communicators in a
  // transport's life.
  static constexpr int kMaxRanks = 64;
  static constexpr int kMaxCommunicators = 8;

  static absl::StatusOr<std::unique_ptr<ShmTransport>> Create(
      ShmTransportOptions options);

  // What Connect() of the other ranks takes. Text.
  const std::string& address() const { return rendezvous_.address(); }

  // `addresses` of all ranks, by rank. Once.
  absl::Status Connect(absl::Span<const std::string> addresses);

  // The communicator of this rank in the group of `ranks` (of the world,
  // ascending), all on this host. All members give the same `id`; groups that
  // share a rank need different ids. An id is used once in the life of a
  // transport. Called when connected, by members in any order.
  // INVALID_ARGUMENT, naming rank and host, when one is on another host.
  absl::StatusOr<std::unique_ptr<Communicator>> CreateCommunicator(
      absl::string_view name, int id, absl::Span<const int> ranks);

 private:
  ShmTransport(ShmTransportOptions options, std::shared_ptr<SharedRegion> own,
               HostRendezvous rendezvous);

  absl::StatusOr<std::shared_ptr<SharedRegion>> RegionOf(int rank);

  const ShmTransportOptions options_;
  HostRendezvous rendezvous_;
  // By rank, of those this rank shares a group with. Shared with communicators,
  // which may outlive the transport.
  std::vector<std::shared_ptr<SharedRegion>> regions_;
};

}  // namespace weft::comm

#endif  // WEFT_KERNELS_COMM_SHM_SHM_H_

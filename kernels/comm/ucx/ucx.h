// Collectives among processes, over UCX: shared memory on one host, TCP between
// hosts.
//
//   // On each rank, for each stream that communicates:
//   UcxTransportOptions options;
//   options.name = "ep";
//   options.rank = rank;
//   options.world = world;
//   options.device = device.get();
//   ASSIGN_OR_RETURN(auto transport, UcxTransport::Create(options));
//   // Exchange transport->address() with all ranks by some other means, then:
//   RETURN_IF_ERROR(transport->Connect(addresses));
//   ASSIGN_OR_RETURN(auto ep, transport->CreateCommunicator("ep", 1, {2, 3}));
#ifndef WEFT_KERNELS_COMM_UCX_UCX_H_
#define WEFT_KERNELS_COMM_UCX_UCX_H_

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
#include "kernels/device/device.h"

namespace weft::comm {
namespace ucx {
class UcxLink;
}  // namespace ucx

struct UcxTransportOptions {
  // Of the stream that it serves; ranks connect transports of one name.
  std::string name;
  int rank = 0;
  int world = 1;
  // How long one collective may take.
  absl::Duration deadline = absl::Seconds(60);
  // Stops collectives that wait. Borrowed; may be null.
  Cancellation* cancellation = nullptr;
  // Staging memory is allocated from it. Borrowed.
  device::Device* device = nullptr;
  // Longer segments travel as several messages. The same on all ranks.
  int64_t max_message_bytes = int64_t{1} << 30;
};

// A UCX worker with endpoints to the same stream's workers of all ranks, and
// the communicators that share it.
//
// Guarantees, beyond those of Communicator:
// - A waiting thread sleeps.
// - A peer that dies is UNAVAILABLE where UCX notices (on sending to it), else
//   DEADLINE_EXCEEDED or CANCELLED, whichever comes first.
// - Messages of differing sizes at sender and receiver are INVALID_ARGUMENT at
//   the receiver. Ranks that call different kinds of collectives do not hear
//   each other, and meet their deadlines.
// - After the first error of any communicator the transport is unusable: every
//   later collective returns that error. Buffers of the failed collective are
//   neither read nor written from the moment it returns, by this process or a
//   peer, and may be freed at once.
// - Destroying it takes no longer than some milliseconds, whatever state the
//   peers are in; descriptors, threads and memory are as before.
//
// Requires: its communicators are called by one thread at a time (their
// stream's); Connect() and the destructor run while no collective does.
// A fork() after Create() is not supported in the child.
class UcxTransport {
 public:
  // The largest number of ranks, and of communicators in a transport's life.
  static constexpr int kMaxRanks = 4096;
  static constexpr int kMaxCommunicators = 4096;

  static absl::StatusOr<std::unique_ptr<UcxTransport>> Create(
      UcxTransportOptions options);
  ~UcxTransport();

  UcxTransport(const UcxTransport&) = delete;
  UcxTransport& operator=(const UcxTransport&) = delete;

  // Bytes that Connect() of the other ranks takes. Not text.
  const std::string& address() const;

  // `addresses` of all ranks, by rank. Once. INVALID_ARGUMENT when they are not
  // those of this stream's transports of these ranks and of one configuration.
  absl::Status Connect(absl::Span<const std::string> addresses);

  // The communicator of this rank in the group of `ranks` (of the world,
  // ascending). All members give the same `id`; groups that share a rank need
  // different ids. An id is used once in the life of a transport. Called when
  // connected. The communicator may outlive the transport; its collectives then
  // return FAILED_PRECONDITION.
  absl::StatusOr<std::unique_ptr<Communicator>> CreateCommunicator(
      absl::string_view name, int id, absl::Span<const int> ranks);

  // The first error of any communicator, or OK. Called while no collective
  // runs.
  absl::Status status() const;

 private:
  UcxTransport(UcxTransportOptions options, std::shared_ptr<ucx::UcxLink> link);

  const UcxTransportOptions options_;
  // Shared with the communicators, which may outlive the transport.
  const std::shared_ptr<ucx::UcxLink> link_;
  std::string address_;
  std::vector<bool> used_ids_;
};

}  // namespace weft::comm

#endif  // WEFT_KERNELS_COMM_UCX_UCX_H_

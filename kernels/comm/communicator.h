// Communicator: the collectives of one group of ranks, issued on a stream.
#ifndef WEFT_KERNELS_COMM_COMMUNICATOR_H_
#define WEFT_KERNELS_COMM_COMMUNICATOR_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/dtype.h"
#include "kernels/device/device.h"

namespace weft::comm {

// Names the plan op that issues a collective; used in errors and traces only.
struct CollectiveTag {
  const char* op = "";    // e.g. "dispatch.forward"; static storage
  int32_t op_index = -1;  // index in the program
  int32_t layer = -1;     // n of layers.n; -1: of no decoder layer
  int32_t microbatch = -1;
};

// A run of bytes exchanged with one peer. The k-th segment a rank sends to a
// peer lands in the k-th segment the peer receives from it, where empty ones do
// not count; both must have the same size.
struct Segment {
  int32_t peer = 0;    // rank inside the group; the own rank is a local copy
  int64_t offset = 0;  // bytes from the begin of the send or receive buffer
  int64_t bytes = 0;
  // Of a received segment: where it lies in the peer's send buffer, in bytes
  // from its begin. Backends that fetch it from there need it; the others
  // ignore it.
  int64_t peer_offset = -1;
};

// The collectives of one group. Every member calls the same methods in the same
// order with matching sizes.
//
// Called from inside work launched on `stream` (see device::WorkFn): a CPU
// backend returns when the data has arrived, a CUDA backend when the work is
// enqueued; either way the data may be read by later work of the same stream.
// Sums are taken in ascending rank order, so results do not depend on arrival.
//
// Errors: DEADLINE_EXCEEDED when a peer does not answer within the group's
// deadline, CANCELLED when the group's cancellation fired, UNAVAILABLE when the
// transport lost a peer. Each names group, op, layer, microbatch and the peers
// not heard from. INVALID_ARGUMENT, naming the value and what is allowed, for
// arguments that make no sense and for sizes that differ from a peer's. After
// an error the communicator is unusable.
//
// Not thread-safe: one stream owns a communicator.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual absl::string_view name() const = 0;  // e.g. "ep", "gather.dp"
  virtual int rank() const = 0;                // this rank inside the group
  virtual int size() const = 0;

  // Prepares staging so that no later call allocates whose larger buffer (of
  // send and recv) holds up to `bytes`.
  virtual absl::Status Reserve(int64_t bytes) = 0;

  // Names device memory that later calls send from, each buffer one allocation
  // of Device::Allocate() that outlives the communicator. Backends that let
  // peers fetch from it need it; they return when all members have called.
  // Once, before the collectives. The default does nothing.
  virtual absl::Status RegisterMemory(
      absl::Span<const device::Buffer* const> buffers) {
    return absl::OkStatus();
  }

  // recv[r] = rank r's send; `recv` holds size() * bytes. `send` may be the own
  // slice of `recv`.
  virtual absl::Status AllGather(const void* send, void* recv, int64_t bytes,
                                 device::Stream& stream,
                                 const CollectiveTag& tag) = 0;

  // recv = sum over ranks, ascending, of their send[own rank]; `send` holds
  // size() * elements. `recv` may be the own slice of `send`. kF32, kF64,
  // or kBf16, whose sum is taken in fp32 and rounded once, to the nearest even.
  virtual absl::Status ReduceScatter(const void* send, void* recv,
                                     int64_t elements, DType dtype,
                                     device::Stream& stream,
                                     const CollectiveTag& tag) = 0;

  // In place; exactly ReduceScatter followed by AllGather. `elements` must be
  // divisible by size().
  virtual absl::Status AllReduce(void* data, int64_t elements, DType dtype,
                                 device::Stream& stream,
                                 const CollectiveTag& tag) = 0;

  // Moves the listed segments. What is sent and what is received must not
  // overlap.
  virtual absl::Status AllToAllV(const void* send,
                                 absl::Span<const Segment> sends, void* recv,
                                 absl::Span<const Segment> recvs,
                                 device::Stream& stream,
                                 const CollectiveTag& tag) = 0;

  // data = that of rank `root` of the group.
  virtual absl::Status Broadcast(void* data, int64_t bytes, int root,
                                 device::Stream& stream,
                                 const CollectiveTag& tag) = 0;

  // Returns when every rank has called it.
  virtual absl::Status Barrier(device::Stream& stream,
                               const CollectiveTag& tag) = 0;

  // Payload bytes this rank has sent to other ranks so far. Any thread.
  virtual int64_t wire_bytes() const = 0;
};

}  // namespace weft::comm

#endif  // WEFT_KERNELS_COMM_COMMUNICATOR_H_

// Segments of an all-to-all: what makes them legal, and how those of two ranks
// in one process meet. For backends.
#ifndef WEFT_KERNELS_COMM_SEGMENTS_H_
#define WEFT_KERNELS_COMM_SEGMENTS_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/comm/communicator.h"

namespace weft::comm {

// INVALID_ARGUMENT, naming peer, offset and bytes, unless every segment names a
// rank of a group of `size` and neither its offset nor its bytes are negative.
absl::Status CheckSegments(absl::Span<const Segment> segments, int size);

// Calls `pair` for the k-th of `sends` to `receiver` and the k-th of `recvs`
// from `sender`, for each k; empty ones do not count. INVALID_ARGUMENT, naming
// k and both sizes, when two that meet differ in size or one has no other.
absl::Status PairSegments(
    absl::Span<const Segment> sends, int receiver,
    absl::Span<const Segment> recvs, int sender,
    absl::FunctionRef<void(const Segment& from, const Segment& to)> pair);

// What a rank sends: its buffer, all its segments, and who it sends to here.
struct SentSegments {
  const void* data = nullptr;
  absl::Span<const Segment> segments;
  int receiver = 0;
};

// What a rank receives: likewise, and who it receives from here.
struct ReceivedSegments {
  void* data = nullptr;
  absl::Span<const Segment> segments;
  int sender = 0;
};

// Copies what PairSegments() pairs, with its errors; and INVALID_ARGUMENT when
// a received one says that it lies elsewhere at the sender.
absl::Status CopySegments(const SentSegments& sent,
                          const ReceivedSegments& received);

}  // namespace weft::comm

#endif  // WEFT_KERNELS_COMM_SEGMENTS_H_

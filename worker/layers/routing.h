// Where routed rows lie on both sides of an all-to-all, from the counts matrix.
//
// counts[s, e] is how many rows source rank s sends to global expert e. Expert
// e lives on rank e / local_experts. The sender keeps its rows ordered by
// (expert, token). The owner keeps what it received ordered by (local expert,
// source rank, token), so a chunk (source, local expert) is contiguous on both
// sides and is received straight into its place.
#ifndef WEFT_WORKER_LAYERS_ROUTING_H_
#define WEFT_WORKER_LAYERS_ROUTING_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/comm/communicator.h"
#include "model/shape.h"

namespace weft::layers {

// A view of one counts matrix as one rank of the EP group sees it.
class Routing {
 public:
  // `counts` is i32[ep, experts], readable by the host.
  Routing(const model::Shape& shape, int rank, const int32_t* counts)
      : ranks_(static_cast<int>(shape.ep)),
        experts_(shape.experts),
        local_experts_(shape.local_experts()),
        rank_(rank),
        counts_(counts) {}

  // Rows that the experts of `rank` get.
  int64_t ReceivedRows(int rank) const;
  int64_t ReceivedRows() const { return ReceivedRows(rank_); }

  // Rows that this rank sends.
  int64_t SentRows() const;

  // RESOURCE_EXHAUSTED, naming the rows of each rank, when a rank would get
  // more than `max_rows`. All ranks see the same counts, so all fail, or none.
  absl::Status CheckBound(int64_t max_rows) const;

  // First received row of each local expert, and their end: local_experts + 1.
  void FillExpertOffsets(int64_t* offsets) const;

  // Chunks of the rows this rank sends, as they lie in its send buffer; one a
  // global expert. At the peer they lie in its received buffer.
  absl::Span<const comm::Segment> SentChunks(int64_t row_bytes,
                                             comm::Segment* out) const;
  // Chunks of the rows this rank's experts get, as they lie in the received
  // buffer; one for each source rank and local expert. At the peer they lie in
  // its send buffer.
  absl::Span<const comm::Segment> ReceivedChunks(int64_t row_bytes,
                                                 comm::Segment* out) const;

 private:
  int64_t count(int source, int64_t expert) const {
    return counts_[source * experts_ + expert];
  }

  int ranks_;
  int64_t experts_;
  int64_t local_experts_;
  int rank_;
  const int32_t* counts_;
};

}  // namespace weft::layers

#endif  // WEFT_WORKER_LAYERS_ROUTING_H_

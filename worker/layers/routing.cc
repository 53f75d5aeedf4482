#include "worker/layers/routing.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace weft::layers {

int64_t Routing::ReceivedRows(int rank) const {
  int64_t rows = 0;
  for (int source = 0; source < ranks_; ++source) {
    for (int64_t e = 0; e < local_experts_; ++e) {
      rows += count(source, rank * local_experts_ + e);
    }
  }
  return rows;
}

int64_t Routing::SentRows() const {
  int64_t rows = 0;
  for (int64_t e = 0; e < experts_; ++e) rows += count(rank_, e);
  return rows;
}

absl::Status Routing::CheckBound(int64_t max_rows) const {
  bool fits = true;
  for (int rank = 0; rank < ranks_; ++rank) {
    if (ReceivedRows(rank) > max_rows) fits = false;
  }
  if (fits) return absl::OkStatus();
  std::string rows;
  for (int rank = 0; rank < ranks_; ++rank) {
    absl::StrAppend(&rows, rank > 0 ? ", " : "", ReceivedRows(rank));
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("rows routed to the ranks of the EP group are [", rows,
                   "], but the plan has room for ", max_rows,
                   " on a rank; raise model.moe.max_rows_factor"));
}

void Routing::FillExpertOffsets(int64_t* offsets) const {
  int64_t at = 0;
  for (int64_t e = 0; e < local_experts_; ++e) {
    offsets[e] = at;
    for (int source = 0; source < ranks_; ++source) {
      at += count(source, rank_ * local_experts_ + e);
    }
  }
  offsets[local_experts_] = at;
}

absl::Span<const comm::Segment> Routing::SentChunks(int64_t row_bytes,
                                                    comm::Segment* out) const {
  int64_t row = 0;
  for (int64_t e = 0; e < experts_; ++e) {
    const int64_t rows = count(rank_, e);
    out[e].peer = static_cast<int32_t>(e / local_experts_);
    out[e].offset = row * row_bytes;
    out[e].bytes = rows * row_bytes;
    row += rows;
  }
  for (int owner = 0; owner < ranks_; ++owner) {
    int64_t there = 0;
    for (int64_t e = owner * local_experts_; e < (owner + 1) * local_experts_;
         ++e) {
      for (int source = 0; source < ranks_; ++source) {
        if (source == rank_) out[e].peer_offset = there * row_bytes;
        there += count(source, e);
      }
    }
  }
  return {out, static_cast<size_t>(experts_)};
}

absl::Span<const comm::Segment> Routing::ReceivedChunks(
    int64_t row_bytes, comm::Segment* out) const {
  int64_t row = 0;
  for (int64_t e = 0; e < local_experts_; ++e) {
    for (int source = 0; source < ranks_; ++source) {
      const int64_t rows = count(source, rank_ * local_experts_ + e);
      comm::Segment& chunk = out[source * local_experts_ + e];
      chunk.peer = source;
      chunk.offset = row * row_bytes;
      chunk.bytes = rows * row_bytes;
      row += rows;
    }
  }
  for (int source = 0; source < ranks_; ++source) {
    int64_t there = 0;
    for (int64_t e = 0; e < (rank_ + 1) * local_experts_; ++e) {
      const int64_t local = e - rank_ * local_experts_;
      if (local >= 0) {
        out[source * local_experts_ + local].peer_offset = there * row_bytes;
      }
      there += count(source, e);
    }
  }
  return {out, static_cast<size_t>(experts_)};
}

}  // namespace weft::layers

#include "kernels/comm/segments.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "kernels/comm/bytes.h"

namespace weft::comm {
namespace {

// The non-empty segments that name one peer, in order.
class SegmentsOf {
 public:
  SegmentsOf(absl::Span<const Segment> segments, int peer)
      : segments_(segments), peer_(peer) {}

  // Null when there are no more.
  const Segment* Next() {
    while (at_ < segments_.size()) {
      const Segment& segment = segments_[at_++];
      if (segment.peer == peer_ && segment.bytes > 0) return &segment;
    }
    return nullptr;
  }

 private:
  const absl::Span<const Segment> segments_;
  const int peer_;
  size_t at_ = 0;
};

}  // namespace

absl::Status CheckSegments(absl::Span<const Segment> segments, int size) {
  for (const Segment& segment : segments) {
    if (segment.peer < 0 || segment.peer >= size || segment.offset < 0 ||
        segment.bytes < 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a segment of ", segment.bytes, " bytes at offset ", segment.offset,
          " names peer ", segment.peer, " of a group of ", size,
          " ranks; none of them may be negative"));
    }
  }
  return absl::OkStatus();
}

absl::Status CopySegments(const SentSegments& sent,
                          const ReceivedSegments& received) {
  SegmentsOf sends(sent.segments, sent.receiver);
  SegmentsOf recvs(received.segments, received.sender);
  for (int k = 0;; ++k) {
    const Segment* const from = sends.Next();
    const Segment* const to = recvs.Next();
    if (from == nullptr && to == nullptr) return absl::OkStatus();
    const int64_t sent_bytes = from == nullptr ? 0 : from->bytes;
    const int64_t wanted_bytes = to == nullptr ? 0 : to->bytes;
    if (sent_bytes != wanted_bytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("segment ", k, " has ", sent_bytes, " bytes, but ",
                       wanted_bytes, " are expected"));
    }
    CopyBytes(At(received.data, to->offset), At(sent.data, from->offset),
              sent_bytes);
  }
}

}  // namespace weft::comm

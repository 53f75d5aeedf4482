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

absl::Status PairSegments(
    absl::Span<const Segment> sends, int receiver,
    absl::Span<const Segment> recvs, int sender,
    absl::FunctionRef<void(const Segment& from, const Segment& to)> pair) {
  SegmentsOf sent(sends, receiver);
  SegmentsOf received(recvs, sender);
  for (int k = 0;; ++k) {
    const Segment* const from = sent.Next();
    const Segment* const to = received.Next();
    if (from == nullptr && to == nullptr) return absl::OkStatus();
    const int64_t sent_bytes = from == nullptr ? 0 : from->bytes;
    const int64_t wanted_bytes = to == nullptr ? 0 : to->bytes;
    if (sent_bytes != wanted_bytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("segment ", k, " has ", sent_bytes, " bytes, but ",
                       wanted_bytes, " are expected"));
    }
    pair(*from, *to);
  }
}

absl::Status CopySegments(const SentSegments& sent,
                          const ReceivedSegments& received) {
  absl::Status elsewhere;
  const absl::Status paired = PairSegments(
      sent.segments, sent.receiver, received.segments, received.sender,
      [&](const Segment& from, const Segment& to) {
        if (to.peer_offset >= 0 && to.peer_offset != from.offset) {
          elsewhere.Update(absl::InvalidArgumentError(absl::StrCat(
              "a segment of ", to.bytes, " bytes lies at offset ", from.offset,
              " of the peer's send buffer, not at ", to.peer_offset)));
        }
        CopyBytes(At(received.data, to.offset), At(sent.data, from.offset),
                  from.bytes);
      });
  return paired.ok() ? elsewhere : paired;
}

}  // namespace weft::comm

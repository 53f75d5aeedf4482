#include "fsdp/runtime/segments.h"

#include <algorithm>

namespace weft::fsdp {

std::vector<Segment> SegmentsIn(const Bucket& bucket, const Range& range) {
  std::vector<Segment> segments;
  for (const Placement& placement : bucket.placements) {
    const int64_t begin = std::max(range.begin, placement.offset);
    const int64_t end =
        std::min(range.end, placement.offset + placement.elements);
    if (begin >= end) continue;
    segments.push_back(
        {placement.param, begin, begin - placement.offset, end - begin});
  }
  return segments;
}

std::vector<Range> PaddingOf(const Bucket& bucket) {
  std::vector<Range> padding;
  int64_t at = 0;
  for (const Placement& placement : bucket.placements) {
    if (placement.offset > at) padding.push_back({at, placement.offset});
    at = placement.offset + placement.elements;
  }
  if (bucket.elements > at) padding.push_back({at, bucket.elements});
  return padding;
}

}  // namespace weft::fsdp

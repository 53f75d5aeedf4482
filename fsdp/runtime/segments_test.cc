#include "fsdp/runtime/segments.h"

#include <vector>

#include "gtest/gtest.h"

namespace weft::fsdp {
namespace {

// Two parameters of 10 and 20 elements in a bucket of 64 for two ranks.
Bucket TwoParameters() {
  Bucket bucket;
  bucket.group_size = 2;
  bucket.elements = 64;
  bucket.placements = {{7, 0, 10}, {9, 16, 20}};
  return bucket;
}

TEST(SegmentsTest, SlicesCutParametersWithoutLossOrOverlap) {
  const Bucket bucket = TwoParameters();
  for (int ranks : {1, 2, 4, 8, 16}) {
    std::vector<int> seen(64);
    for (int rank = 0; rank < ranks; ++rank) {
      const Range slice = {rank * 64 / ranks, (rank + 1) * 64 / ranks};
      for (const Segment& s : SegmentsIn(bucket, slice)) {
        EXPECT_GE(s.bucket_offset, slice.begin);
        EXPECT_LE(s.bucket_offset + s.elements, slice.end);
        const int64_t begin = s.param == 7 ? 0 : 16;
        EXPECT_EQ(s.bucket_offset, begin + s.param_offset);
        for (int64_t i = 0; i < s.elements; ++i) ++seen[s.bucket_offset + i];
      }
    }
    for (const Range& padding : PaddingOf(bucket)) {
      for (int64_t i = padding.begin; i < padding.end; ++i) ++seen[i];
    }
    EXPECT_EQ(seen, std::vector<int>(64, 1)) << ranks;
  }
}

TEST(SegmentsTest, PaddingIsBetweenAndAfterParameters) {
  const std::vector<Range> padding = PaddingOf(TwoParameters());
  ASSERT_EQ(padding.size(), 2);
  EXPECT_EQ(padding[0].begin, 10);
  EXPECT_EQ(padding[0].end, 16);
  EXPECT_EQ(padding[1].begin, 36);
  EXPECT_EQ(padding[1].end, 64);
}

}  // namespace
}  // namespace weft::fsdp

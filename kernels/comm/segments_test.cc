#include "kernels/comm/segments.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::comm {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(CheckSegmentsTest, RefusesPeersOutsideTheGroupAndWhatIsNegative) {
  EXPECT_OK(CheckSegments({{0, 0, 4}, {1, 4, 0}}, 2));
  for (const Segment& bad : {Segment{2, 0, 4}, Segment{-1, 0, 4},
                             Segment{0, -8, 4}, Segment{0, 0, -4}}) {
    EXPECT_THAT(CheckSegments({bad}, 2),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("of a group of 2 ranks")));
  }
}

TEST(CopySegmentsTest, PutsTheKthSegmentIntoTheKthAndSkipsOthersAndEmptyOnes) {
  const std::string sent = "abcdef";
  std::string received = "......";
  const std::vector<Segment> sends = {
      {1, 0, 1}, {0, 3, 2}, {1, 5, 0}, {1, 1, 2}};
  const std::vector<Segment> recvs = {
      {3, 0, 0}, {3, 4, 1}, {2, 0, 6}, {3, 0, 2}};
  EXPECT_OK(CopySegments({sent.data(), sends, 1}, {&received[0], recvs, 3}));
  EXPECT_EQ(received, "bc..a.");
}

TEST(CopySegmentsTest, WrongOffsetAtThePeerIsNamed) {
  char data[8] = {};
  EXPECT_OK(CopySegments({data, {{0, 2, 3}}, 0}, {data, {{0, 2, 3, 2}}, 0}));
  EXPECT_THAT(CopySegments({data, {{0, 2, 3}}, 0}, {data, {{0, 2, 3, 4}}, 0}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("at offset 2"), HasSubstr("not at 4"))));
}

TEST(CopySegmentsTest, SizesThatDifferAreNamed) {
  char data[8] = {};
  EXPECT_THAT(
      CopySegments({data, {{0, 0, 2}, {0, 2, 3}}, 0},
                   {data, {{0, 0, 2}, {0, 2, 4}}, 0}),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("segment 1 has 3 bytes"), HasSubstr("4"))));
  EXPECT_THAT(CopySegments({data, {{0, 0, 2}}, 0}, {data, {}, 0}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("segment 0 has 2 bytes, but 0")));
}

}  // namespace
}  // namespace weft::comm

#include "worker/layers/routing.h"

#include <array>
#include <vector>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::layers {
namespace {

using ::testing::HasSubstr;

// Two ranks, two experts on each.
model::Shape TwoByTwo() {
  model::Shape shape;
  shape.ep = 2;
  shape.experts = 4;
  return shape;
}

// Rank 0 sends 1, 2, 0, 3 rows; rank 1 sends 0, 4, 5, 0.
constexpr int32_t kCounts[] = {1, 2, 0, 3, 0, 4, 5, 0};

TEST(RoutingTest, CountsRowsOfEachRank) {
  const Routing routing(TwoByTwo(), 1, kCounts);
  EXPECT_EQ(routing.ReceivedRows(0), 1 + 2 + 0 + 4);
  EXPECT_EQ(routing.ReceivedRows(), 0 + 3 + 5 + 0);
}

TEST(RoutingTest, ExpertOffsetsGroupRowsByExpert) {
  const model::Shape shape = TwoByTwo();
  int64_t offsets[3];
  Routing(shape, 0, kCounts).FillExpertOffsets(offsets);
  EXPECT_THAT(offsets, ::testing::ElementsAre(0, 1, 7));
}

TEST(RoutingTest, ChunksLieByExpertThenSource) {
  const model::Shape shape = TwoByTwo();
  const Routing routing(shape, 0, kCounts);
  std::vector<comm::Segment> segments(4);
  const auto received = routing.ReceivedChunks(10, segments.data());
  // Local expert 0: one row of rank 0; local expert 1: two of rank 0, then
  // four of rank 1.
  const int64_t expected[][3] = {
      {0, 0, 10}, {0, 10, 20}, {1, 10, 0}, {1, 30, 40}};
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(received[i].peer, expected[i][0]) << i;
    EXPECT_EQ(received[i].offset, expected[i][1]) << i;
    EXPECT_EQ(received[i].bytes, expected[i][2]) << i;
  }
}

TEST(RoutingTest, ChunksOfBothEndsMatch) {
  const model::Shape shape = TwoByTwo();
  std::vector<comm::Segment> sent(4);
  std::vector<comm::Segment> received(4);
  for (int from = 0; from < 2; ++from) {
    for (int to = 0; to < 2; ++to) {
      Routing(shape, from, kCounts).SentChunks(4, sent.data());
      Routing(shape, to, kCounts).ReceivedChunks(4, received.data());
      // Of each end: how long, where here and where there.
      std::vector<std::array<int64_t, 3>> there;
      std::vector<std::array<int64_t, 3>> here;
      for (const comm::Segment& s : sent) {
        if (s.peer == to) there.push_back({s.bytes, s.offset, s.peer_offset});
      }
      for (const comm::Segment& s : received) {
        if (s.peer == from) here.push_back({s.bytes, s.peer_offset, s.offset});
      }
      EXPECT_EQ(there, here) << from << " to " << to;
    }
  }
}

TEST(RoutingTest, MoreRowsThanTheBoundNamesTheCounts) {
  const model::Shape shape = TwoByTwo();
  for (int rank = 0; rank < 2; ++rank) {  // both ranks find out
    const Routing routing(shape, rank, kCounts);
    EXPECT_OK(routing.CheckBound(8));
    EXPECT_THAT(
        routing.CheckBound(7),
        StatusIs(absl::StatusCode::kResourceExhausted,
                 HasSubstr("rows routed to the ranks of the EP group are "
                           "[7, 8], but the plan has room for 7 on a rank; "
                           "raise model.moe.max_rows_factor")));
  }
}

}  // namespace
}  // namespace weft::layers

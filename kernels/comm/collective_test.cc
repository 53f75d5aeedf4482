#include "kernels/comm/collective.h"

#include <cstring>
#include <limits>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/bf16.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::comm {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(SumInOrderTest, IsThePlainLoopBitForBit) {
  constexpr int64_t kElements = 1000;  // no multiple of a block
  std::vector<std::vector<float>> sources(3, std::vector<float>(kElements));
  for (int s = 0; s < 3; ++s) {
    for (int64_t i = 0; i < kElements; ++i) {
      sources[s][i] = static_cast<float>((i * 7919 + s * 104729) % 1000) / 7 *
                      (s == 1 ? -1e6f : 1.0f);
    }
  }
  std::vector<float> expected(kElements);
  for (int64_t i = 0; i < kElements; ++i) {
    expected[i] = (sources[0][i] + sources[1][i]) + sources[2][i];
  }
  const std::vector<const void*> from = {sources[0].data(), sources[1].data(),
                                         sources[2].data()};
  SumInOrder(from, sources[1].data(), kElements, DType::kF32);
  EXPECT_EQ(0, std::memcmp(sources[1].data(), expected.data(),
                           kElements * sizeof(float)));
}

TEST(SumInOrderTest, RoundsASumOfBf16Once) {
  // In bf16 the first sum alone would lose each of the small ones.
  const Bf16 large[1] = {ToBf16(256.0f)};
  const Bf16 small[1] = {ToBf16(0.75f)};
  const void* const from[4] = {large, small, small, small};
  Bf16 out[1];
  SumInOrder(from, out, 1, DType::kBf16);
  EXPECT_EQ(ToFloat(out[0]), 258.0f);  // 258.25
}

TEST(SumInOrderTest, OneSourceKeepsItsSignedZeros) {
  const double source[2] = {-0.0, 1.0};
  double out[2] = {5.0, 5.0};
  const void* const from[1] = {source};
  SumInOrder(from, out, 2, DType::kF64);
  EXPECT_EQ(0, std::memcmp(source, out, sizeof(out)));
}

TEST(CollectiveErrorTest, NamesGroupOpPeersAndDeadline) {
  const CollectiveId id = {CollectiveKind::kAllToAllV, 17,
                           CollectiveTag{"dispatch.forward", 12, 3, 1}};
  EXPECT_THAT(DeadlineError("ep", id, 0, absl::Seconds(3), {2, 3}),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       "group ep, all_to_all_v number 17 (op dispatch.forward "
                       "at 12, layer 3, microbatch 1) on rank 0: not done "
                       "within 3s; not heard from ranks 2, 3"));
  EXPECT_THAT(CancelledError("ep", id, 0, absl::UnavailableError("gone"), {}),
              StatusIs(absl::StatusCode::kCancelled,
                       AllOf(HasSubstr("on rank 0: cancelled (gone)"))));
}

TEST(CheckSummableTest, RefusesMoreElementsThanBytesCanBeCounted) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  EXPECT_OK(CheckSummable(DType::kF32, kMost / 4));
  EXPECT_OK(CheckSummable(DType::kF64, kMost / 8));
  EXPECT_THAT(
      CheckSummable(DType::kF32, kMost / 4 + 1),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("at most")));
  EXPECT_THAT(CheckDivisible(DType::kF64, kMost / 8 + 1, 1),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("elements of f64")));
}

TEST(CheckGroupTest, RefusesGroupsThatAreNotAscendingOrLackTheRank) {
  int place = -1;
  EXPECT_OK(CheckGroup("ep", {1, 3, 4}, 3, &place));
  EXPECT_EQ(place, 1);
  EXPECT_THAT(
      CheckGroup("ep", {1, 1}, 1, &place),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("ascend")));
  EXPECT_THAT(CheckGroup("ep", {0, 2}, 1, &place),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("does not hold rank 1")));
}

}  // namespace
}  // namespace weft::comm

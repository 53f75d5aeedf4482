#include "base/strong_int.h"

#include <cstdint>
#include <sstream>
#include <type_traits>

#include "absl/hash/hash_testing.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

WEFT_STRONG_INT(RankId, int32_t);
WEFT_STRONG_INT(UnitId, int32_t);
WEFT_STRONG_INT(SmallId, uint8_t);

static_assert(!std::is_convertible_v<RankId, UnitId>);
static_assert(!std::is_convertible_v<int32_t, RankId>);
static_assert(!std::is_convertible_v<RankId, int32_t>);

TEST(StrongIntTest, Compares) {
  EXPECT_EQ(RankId(), RankId(0));
  EXPECT_NE(RankId(1), RankId(2));
  EXPECT_LT(RankId(1), RankId(2));
  EXPECT_GE(RankId(2), RankId(2));
}

TEST(StrongIntTest, Steps) {
  int sum = 0;
  for (RankId rank(0); rank < RankId(4); ++rank) sum += rank.value();
  EXPECT_EQ(sum, 6);
}

TEST(StrongIntTest, PrintsTheNumber) {
  std::ostringstream os;
  os << RankId(12) << " " << SmallId(7);
  EXPECT_EQ(os.str(), "12 7");
}

TEST(StrongIntTest, Hashes) {
  EXPECT_TRUE(absl::VerifyTypeImplementsAbslHashCorrectly(
      {RankId(0), RankId(1), RankId(-1)}));
}

}  // namespace
}  // namespace weft

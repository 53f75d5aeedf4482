#include "kernels/ops/checksum/checksum.h"

#include <set>
#include <string>

#include "gtest/gtest.h"
#include "kernels/ops/testing/testing.h"

namespace weft::ops {
namespace {

using testing::InlineStream;

uint64_t Sum(const std::string& x) {
  uint64_t out = 1;
  Checksum({static_cast<int64_t>(x.size()), x.data(), &out}, InlineStream());
  return out;
}

TEST(ChecksumTest, EveryFlippedBitChangesIt) {
  std::string x = "weights of the first layer, 33 b.";
  const uint64_t sum = Sum(x);
  std::set<uint64_t> sums = {sum};
  for (char& byte : x) {
    for (int bit = 0; bit < 8; ++bit) {
      byte ^= 1 << bit;
      EXPECT_TRUE(sums.insert(Sum(x)).second);
      byte ^= 1 << bit;
    }
  }
  EXPECT_EQ(Sum(x), sum);
}

TEST(ChecksumTest, WordsHaveTheirPlaces) {
  EXPECT_NE(Sum("aaaabbbb"), Sum("bbbbaaaa"));
  EXPECT_NE(Sum(std::string(4, '\0')), Sum(std::string(8, '\0')));
}

TEST(ChecksumTest, OfNothingIsZero) { EXPECT_EQ(Sum(""), 0); }

TEST(ChecksumTest, DoesNotDependOnAlignment) {
  const std::string x = "\x01\x02\x03\x04\x05\x06\x07\x08\x09";
  const std::string moved = "z" + x;
  uint64_t out = 0;
  Checksum({9, moved.data() + 1, &out}, InlineStream());
  EXPECT_EQ(out, Sum(x));
}

TEST(ChecksumTest, Accumulates) {
  uint64_t out = Sum("abcd");
  const std::string more = "efgh";
  Checksum({4, more.data(), &out, true}, InlineStream());
  EXPECT_EQ(out, Sum("abcd") + Sum("efgh"));
}

// Every machine computes the same.
TEST(ChecksumTest, HasAFixedValue) {
  EXPECT_EQ(Sum("weft"), uint64_t{0xcea1695459c8568b});
}

}  // namespace
}  // namespace weft::ops

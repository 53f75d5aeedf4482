#include "kernels/ops/checksum/checksum.h"

#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/ops/testing/testing.h"

namespace weft::ops {
namespace {

using testing::InlineStream;

using Bytes = testing::Vector<char>;
using Sums = testing::Vector<uint64_t>;

// Of what follows the first `skip` bytes.
uint64_t Sum(const std::string& x, int64_t skip = 0) {
  const Bytes bytes(x.begin(), x.end());
  Sums out = {1};
  Checksum(
      {static_cast<int64_t>(x.size()) - skip, bytes.data() + skip, out.data()},
      InlineStream());
  return out[0];
}

// The header's formula, of whole words.
uint64_t SumOfWords(const std::vector<uint32_t>& words) {
  uint64_t sum = 0;
  for (uint64_t i = 0; i < words.size(); ++i) {
    uint64_t z = words[i] + (i + 1) * 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    sum += z ^ (z >> 31);
  }
  return sum;
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
  for (int64_t skip = 1; skip < 17; ++skip) {
    EXPECT_EQ(Sum(std::string(skip, 'z') + x, skip), Sum(x));
  }
}

TEST(ChecksumTest, Accumulates) {
  Sums out = {Sum("abcd")};
  const Bytes more = {'e', 'f', 'g', 'h'};
  Checksum({4, more.data(), out.data(), true}, InlineStream());
  EXPECT_EQ(out[0], Sum("abcd") + Sum("efgh"));
}

// Every machine computes the same.
TEST(ChecksumTest, HasAFixedValue) {
  EXPECT_EQ(Sum("weft"), uint64_t{0xcea1695459c8568b});
}

TEST(ChecksumTest, FollowsItsFormula) {
  for (const int64_t count : {1, 3, 4, 5, 1000, 4000001}) {
    std::vector<uint32_t> words(count);
    for (int64_t i = 0; i < count; ++i) words[i] = i * 2654435761u;
    const std::string bytes(reinterpret_cast<const char*>(words.data()),
                            count * sizeof(uint32_t));
    EXPECT_EQ(Sum(bytes), SumOfWords(words)) << count;
    // The last word without its last byte, which counts as zero.
    words.back() &= 0x00ffffff;
    EXPECT_EQ(Sum(bytes.substr(0, bytes.size() - 1)), SumOfWords(words));
  }
}

}  // namespace
}  // namespace weft::ops

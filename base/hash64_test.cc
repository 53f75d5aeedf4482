#include "base/hash64.h"

#include <cstdint>
#include <set>
#include <string>

#include "gtest/gtest.h"

namespace weft {
namespace {

// These values are stored and sent: a change breaks what was written before.
TEST(Hash64Test, NeverChanges) {
  EXPECT_EQ(Hash64().Get(), 0xefd01f60ba992926);
  EXPECT_EQ(Hash64().AddString("weft").Get(), 0x1ae39eaf9daa8d2b);
  EXPECT_EQ(Hash64().AddInt(-1).AddString("").Get(), 0x5c5265894459fa90);
}

TEST(Hash64Test, TellsWhereStringsWereCut) {
  EXPECT_NE(Hash64().AddString("ab").AddString("c").Get(),
            Hash64().AddString("a").AddString("bc").Get());
}

TEST(Hash64Test, DoesNotDependOnTheWidthOfAnInteger) {
  EXPECT_EQ(Hash64().AddInt(int32_t{7}).Get(),
            Hash64().AddInt(uint64_t{7}).Get());
}

TEST(Hash64Test, DependsOnOrder) {
  EXPECT_NE(Hash64().AddInt(1).AddInt(2).Get(),
            Hash64().AddInt(2).AddInt(1).Get());
}

TEST(Hash64Test, SpreadsNeighbours) {
  std::set<uint64_t> top_bytes;
  for (int i = 0; i < 256; ++i)
    top_bytes.insert(Hash64().AddInt(i).Get() >> 56);
  EXPECT_GT(top_bytes.size(), 128);
}

}  // namespace
}  // namespace weft

#include "base/nearest_name.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace weft {
namespace {

TEST(NearestNameTest, DistanceCountsEdits) {
  EXPECT_EQ(EditDistance("", ""), 0);
  EXPECT_EQ(EditDistance("", "abc"), 3);
  EXPECT_EQ(EditDistance("abc", ""), 3);
  EXPECT_EQ(EditDistance("steps", "steps"), 0);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3);
  EXPECT_EQ(EditDistance("step", "steps"), 1);
  EXPECT_EQ(EditDistance("setps", "steps"), 1);
}

TEST(NearestNameTest, TheNearestOfSeveralIsFound) {
  const std::vector<std::string> names = {"hidden_size", "head_dim",
                                          "num_heads"};
  EXPECT_EQ(NearestName("hiden_size", names), "hidden_size");
  EXPECT_EQ(NearestName("heads_dim", names), "head_dim");
  EXPECT_EQ(NearestName("learning_rate", names), "");
  EXPECT_EQ(NearestName("x", {}), "");
}

TEST(NearestNameTest, TheRemarkNamesOneOrAll) {
  EXPECT_EQ(KnownNames("stesp", {"seed", "steps"}),
            "; did you mean \"steps\"?");
  EXPECT_EQ(KnownNames("zzzz", {"seed", "steps"}), "; known: seed, steps");
}

}  // namespace
}  // namespace weft

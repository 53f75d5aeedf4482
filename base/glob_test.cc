#include "base/glob.h"

#include <string>

#include "gtest/gtest.h"

namespace weft {
namespace {

TEST(GlobTest, PlainTextIsItself) {
  EXPECT_TRUE(MatchesGlob("layers.1.qkv", "layers.1.qkv"));
  EXPECT_FALSE(MatchesGlob("layers.1.qkv", "layers.1.qkv_bias"));
  EXPECT_FALSE(MatchesGlob("layers.1.qkv", "layers.1.qk"));
  EXPECT_FALSE(MatchesGlob("layers.1", "layersx1"));
  EXPECT_TRUE(MatchesGlob("", ""));
  EXPECT_FALSE(MatchesGlob("", "a"));
}

TEST(GlobTest, StarsTakeAnyCharacters) {
  EXPECT_TRUE(MatchesGlob("*", ""));
  EXPECT_TRUE(MatchesGlob("layers.*.experts.*", "layers.12.experts.down"));
  EXPECT_FALSE(MatchesGlob("layers.*.experts.*", "layers.12.router"));
  EXPECT_TRUE(MatchesGlob("*.norm?", "layers.3.norm2"));
  EXPECT_FALSE(MatchesGlob("*.norm?", "layers.3.norm"));
  EXPECT_TRUE(MatchesGlob("a**b", "ab"));
  EXPECT_FALSE(MatchesGlob("*a", "ab"));
}

TEST(GlobTest, AStarTriesEveryLength) {
  EXPECT_TRUE(MatchesGlob("*.1.*", "layers.11.1.x"));
  EXPECT_TRUE(MatchesGlob("a*ab", "aabaab"));
  EXPECT_FALSE(MatchesGlob("a*abc", "aabaab"));
  // Ends, which trying every length of every star would not.
  EXPECT_FALSE(MatchesGlob("*a*a*a*a*a*a*a*a*a*a*b", std::string(200, 'a')));
}

TEST(GlobTest, AQuestionMarkTakesOneCharacter) {
  EXPECT_TRUE(MatchesGlob("layers.?.qkv", "layers.7.qkv"));
  EXPECT_FALSE(MatchesGlob("layers.?.qkv", "layers.17.qkv"));
  EXPECT_FALSE(MatchesGlob("?", ""));
}

}  // namespace
}  // namespace weft

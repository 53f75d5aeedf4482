#include "model/pattern.h"

#include <string>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr BlockKind kAttention = BlockKind::kAttention;
constexpr BlockKind kMamba = BlockKind::kMamba;
constexpr BlockKind kMlp = BlockKind::kMlp;
constexpr BlockKind kExperts = BlockKind::kExperts;

TEST(PatternTest, ASymbolIsALayerAndSoIsAGroup) {
  ASSERT_OK_AND_ASSIGN(const Pattern pattern, ParsePattern("M[M*E]-E"));
  EXPECT_THAT(pattern.layers,
              ElementsAre(LayerBlocks{kMamba},
                          LayerBlocks{kMamba, kAttention, kExperts},
                          LayerBlocks{kMlp}, LayerBlocks{kExperts}));
  EXPECT_THAT(pattern.is_group, ElementsAre(false, true, false, false));
  EXPECT_EQ(pattern.mtp_depth, 0);
  EXPECT_THAT(pattern.mtp, IsEmpty());
}

TEST(PatternTest, PartsBehindSlashesAreDepths) {
  ASSERT_OK_AND_ASSIGN(const Pattern pattern, ParsePattern("[*-]/*E/*E"));
  EXPECT_EQ(pattern.mtp_depth, 2);
  EXPECT_EQ(pattern.mtp, (LayerBlocks{kAttention, kExperts}));
}

TEST(PatternTest, DepthsWithoutPartsHaveALayerOfATransformer) {
  v1::ModelConfig model;
  model.set_pattern("M[*-]");
  model.mutable_mtp()->set_depth(2);
  EXPECT_EQ(PatternText(PatternOf(model)), "M[*-]/*-/*-");
  model.mutable_moe();
  model.mutable_mla();
  EXPECT_EQ(PatternText(PatternOf(model)), "M[*-]/+E/+E");
  model.mutable_mtp()->set_dense(true);
  EXPECT_EQ(PatternText(PatternOf(model)), "M[*-]/+-/+-");
  model.set_pattern("M/M");
  EXPECT_EQ(PatternText(PatternOf(model)), "M/M");
}

TEST(PatternTest, TextComesBack) {
  for (const char* text :
       {"*", "[*E][*-]", "M[M*E]M-", "[**E]", "*E*-", "[*E]/*E/*E", "[*]-/E"}) {
    ASSERT_OK_AND_ASSIGN(const Pattern pattern, ParsePattern(text));
    EXPECT_EQ(PatternText(pattern), text);
  }
}

struct Wrong {
  const char* text;
  const char* message;
};
class WrongPatternTest : public ::testing::TestWithParam<Wrong> {};

TEST_P(WrongPatternTest, IsRefusedWithPositionAndRule) {
  EXPECT_THAT(ParsePattern(GetParam().text),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr(GetParam().message)))
      << GetParam().text;
}

INSTANTIATE_TEST_SUITE_P(
    Each, WrongPatternTest,
    ::testing::Values(
        Wrong{"", "position 0: there is no layer"},
        Wrong{"/*E", "position 0: there is no layer"},
        Wrong{"*x", "position 1: `x` is no symbol; there are `M`, `*`"},
        Wrong{"*G", "`G` (gated delta net) is not supported"},
        Wrong{"[DE]", "`D` (DeepSeek sparse attention) is not supported"},
        Wrong{"*E|*E", "`|` (a cut between pipeline stages) is not supported"},
        Wrong{"*/*|", "`|` (a cut between pipeline stages) is not supported"},
        Wrong{"[*E", "the `[` at position 0 is without a matching `]`"},
        Wrong{"*[*E/*", "the `[` at position 1 is without a matching `]`"},
        Wrong{"*]", "position 1: `]` without a matching `[`"},
        Wrong{"*[]", "position 2: a group cannot be empty"},
        Wrong{"[*[E]]", "position 2: `[` inside a group"},
        Wrong{"[E*]", "position 2: `E` must be the last symbol of a group"},
        Wrong{"[*-E]", "position 3: `-` must be the last symbol of a group"},
        Wrong{"*/E*", "`E` must be the last symbol"},
        Wrong{"*/*E/*-", "differs from the first, \"*E\"; all must be alike"},
        Wrong{"*/[*E]", "groups are not supported behind a slash"},
        Wrong{"*/", "a part of multi-token prediction cannot be empty"},
        Wrong{"*//*", "a part of multi-token prediction cannot be empty"}));

TEST(PatternTest, ATransformersLayersAreGroups) {
  v1::ModelConfig model;
  model.set_num_layers(3);
  EXPECT_EQ(PatternText(PatternOf(model)), "[*-][*-][*-]");
  model.mutable_moe();
  model.add_dense_layers(1);
  EXPECT_EQ(PatternText(PatternOf(model)), "[*E][*-][*E]");
  model.set_pattern("E-");
  EXPECT_EQ(PatternText(PatternOf(model)), "E-");
  model.set_pattern("[");
  EXPECT_EQ(PatternText(PatternOf(model)), "");
}

}  // namespace
}  // namespace weft::model

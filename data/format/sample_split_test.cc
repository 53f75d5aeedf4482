#include "data/format/sample_split.h"

#include <limits>

#include "absl/status/status.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::data {
namespace {

using ::testing::HasSubstr;

struct Case {
  int64_t tokens;
  int64_t length;
  double fraction;
  int64_t train;
  int64_t validation;
};

class SplitSamplesTest : public ::testing::TestWithParam<Case> {};

TEST_P(SplitSamplesTest, CutsAsDocumented) {
  const Case& c = GetParam();
  ASSERT_OK_AND_ASSIGN(const SampleSplit split,
                       SplitSamples(c.tokens, c.length, c.fraction));
  EXPECT_EQ(split.train, c.train);
  EXPECT_EQ(split.validation, c.validation);
  // The last sample ends inside the dataset.
  EXPECT_LT((split.train + split.validation) * c.length, c.tokens);
}

INSTANTIATE_TEST_SUITE_P(
    Cases, SplitSamplesTest,
    ::testing::Values(Case{2, 1, 0, 1, 0}, Case{3, 1, 0.5, 1, 1},
                      Case{11, 10, 0, 1, 0}, Case{20, 10, 0, 1, 0},
                      Case{21, 10, 0, 2, 0}, Case{21, 10, 0.001, 1, 1},
                      Case{1001, 10, 0.05, 95, 5}, Case{1001, 10, 0, 100, 0},
                      Case{31, 10, 0.5, 1, 2}, Case{61, 10, 0.1, 5, 1},
                      Case{int64_t{1} << 50, 1 << 20, 0.25, 805306368 - 1,
                           268435456}));

TEST(SplitSamplesTest, ADatasetTooShortIsRefusedByItsNumbers) {
  EXPECT_THAT(SplitSamples(10, 10, 0),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("has 10 tokens, which make 0 samples of "
                                 "sequence_length=10 and one more; 1 is")));
  EXPECT_THAT(SplitSamples(20, 10, 0.1),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("1 samples of sequence_length=10 and one "
                                 "more; 2 are needed, one to train and")));
  EXPECT_THAT(SplitSamples(0, 10, 0),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(SplitSamplesTest, ArgumentsOutOfRangeAreRefused) {
  const auto is_invalid = StatusIs(absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(SplitSamples(100, 0, 0), is_invalid);
  EXPECT_THAT(SplitSamples(100, 1, -0.1), is_invalid);
  EXPECT_THAT(SplitSamples(100, 1, 0.6), is_invalid);
  EXPECT_THAT(SplitSamples(100, 1, std::numeric_limits<double>::quiet_NaN()),
              is_invalid);
}

}  // namespace
}  // namespace weft::data

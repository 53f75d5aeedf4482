#include "data/format/sample_split.h"

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

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

class SplitWindowsTest : public ::testing::TestWithParam<Case> {};

TEST_P(SplitWindowsTest, CutsAsDocumented) {
  const Case& c = GetParam();
  ASSERT_OK_AND_ASSIGN(const SampleSplit split,
                       SplitWindows(c.tokens, c.length, c.fraction));
  EXPECT_EQ(split.train, c.train);
  EXPECT_EQ(split.validation, c.validation);
  // The last sample ends inside the dataset.
  EXPECT_LT((split.train + split.validation) * c.length, c.tokens);
}

INSTANTIATE_TEST_SUITE_P(
    Cases, SplitWindowsTest,
    ::testing::Values(Case{2, 1, 0, 1, 0}, Case{3, 1, 0.5, 1, 1},
                      Case{11, 10, 0, 1, 0}, Case{20, 10, 0, 1, 0},
                      Case{21, 10, 0, 2, 0}, Case{21, 10, 0.001, 1, 1},
                      Case{1001, 10, 0.05, 95, 5}, Case{1001, 10, 0, 100, 0},
                      Case{31, 10, 0.5, 1, 2}, Case{61, 10, 0.1, 5, 1},
                      Case{int64_t{1} << 50, 1 << 20, 0.25, 805306368 - 1,
                           268435456}));

TEST(SplitWindowsTest, ADatasetTooShortIsRefusedByItsNumbers) {
  EXPECT_THAT(SplitWindows(10, 10, 0),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("has 10 tokens, which make 0 samples of "
                                 "sequence_length=10 and one more; 1 is")));
  EXPECT_THAT(SplitWindows(20, 10, 0.1),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("1 samples of sequence_length=10 and one "
                                 "more; 2 are needed, one to train and")));
  EXPECT_THAT(SplitWindows(0, 10, 0),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(SplitWindowsTest, ArgumentsOutOfRangeAreRefused) {
  const auto is_invalid = StatusIs(absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(SplitWindows(100, 0, 0), is_invalid);
  EXPECT_THAT(SplitWindows(100, 1, -0.1), is_invalid);
  EXPECT_THAT(SplitWindows(100, 1, 0.6), is_invalid);
  EXPECT_THAT(SplitWindows(100, 1, std::numeric_limits<double>::quiet_NaN()),
              is_invalid);
}

// A dataset's index with sequences of these lengths, one document.
class Index {
 public:
  explicit Index(const std::vector<int32_t>& lengths)
      : bytes_(IndexBytes(TokenType::kU16, lengths,
                          {0, static_cast<int64_t>(lengths.size())})) {}

  absl::StatusOr<SampleSplit> Split(int64_t sequence_length,
                                    double fraction) const {
    const absl::StatusOr<IndexedDatasetIndex> index =
        IndexedDatasetIndex::Parse(bytes_);
    EXPECT_OK(index.status());
    return SplitSequences(*index, sequence_length, fraction);
  }

 private:
  const std::string bytes_;
};

TEST(SplitSequencesTest, EverySequenceIsASample) {
  const Index index(std::vector<int32_t>(20, 8));
  ASSERT_OK_AND_ASSIGN(SampleSplit split, index.Split(7, 0));
  EXPECT_EQ(split.train, 20);
  EXPECT_EQ(split.validation, 0);
  ASSERT_OK_AND_ASSIGN(split, index.Split(7, 0.12));
  EXPECT_EQ(split.train, 18);
  EXPECT_EQ(split.validation, 2);
}

TEST(SplitSequencesTest, TheFirstSequenceOfAnotherLengthIsNamed) {
  EXPECT_THAT(Index({8, 8, 7, 9}).Split(7, 0),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("sequence 2 of 4 has 7 tokens; each must have "
                                 "sequence_length + 1 = 8")));
  EXPECT_THAT(Index({9}).Split(7, 0),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("sequence 0 of 1 has 9 tokens")));
}

TEST(SplitSequencesTest, TooFewSequencesAreRefused) {
  EXPECT_THAT(Index({8}).Split(7, 0.5),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("has 1 sequences; 2 are needed, one to train "
                                 "and one to validate")));
  EXPECT_THAT(Index({8}).Split(0, 0),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Index({8}).Split(7, 0.6),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace weft::data

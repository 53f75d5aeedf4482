#include "data/format/indexed_dataset.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/status_matchers.h"
#include "data/format/indexed_dataset_writer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class IndexedDatasetTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/dataset.XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    prefix_ = pattern + "/text";
  }

  // A dataset of one document of one sequence.
  absl::Status Write(const std::vector<int32_t>& tokens, int64_t vocab_size) {
    auto writer = IndexedDatasetWriter::Create(prefix_, vocab_size);
    if (!writer.ok()) return writer.status();
    const absl::Status status = (*writer)->AddSequence(tokens);
    return status.ok() ? (*writer)->Finish() : status;
  }

  void WriteFile(const std::string& suffix, const std::string& bytes) {
    std::ofstream(prefix_ + suffix, std::ios::binary) << bytes;
  }

  std::string prefix_;
};

std::vector<int64_t> ReadAll(const IndexedDataset& dataset) {
  std::vector<int64_t> tokens(dataset.num_tokens());
  EXPECT_OK(dataset.Read(0, absl::MakeSpan(tokens)));
  return tokens;
}

TEST_F(IndexedDatasetTest, ReadsSequencesAsOneRow) {
  ASSERT_OK_AND_ASSIGN(auto writer, IndexedDatasetWriter::Create(prefix_, 256));
  ASSERT_OK(writer->AddSequence({1, 2, 3}));
  ASSERT_OK(writer->AddSequence({}));
  writer->EndDocument();
  ASSERT_OK(writer->AddSequence({255, 0}));
  ASSERT_OK(writer->Finish());

  ASSERT_OK_AND_ASSIGN(IndexedDataset opened, IndexedDataset::Open(prefix_));
  const IndexedDataset dataset = std::move(opened);
  EXPECT_EQ(dataset.index().num_documents(), 2);
  EXPECT_EQ(dataset.index().type(), TokenType::kU16);
  EXPECT_THAT(ReadAll(dataset), ElementsAre(1, 2, 3, 255, 0));
  std::vector<int64_t> middle(3);
  ASSERT_OK(dataset.Read(1, absl::MakeSpan(middle)));
  EXPECT_THAT(middle, ElementsAre(2, 3, 255));
}

TEST_F(IndexedDatasetTest, ADatasetThatIsCutWhileItIsOpenIsDataLoss) {
  ASSERT_OK(Write({1, 2, 3}, 256));
  ASSERT_OK_AND_ASSIGN(const auto dataset, IndexedDataset::Open(prefix_));
  std::filesystem::resize_file(prefix_ + ".bin", 0);
  std::vector<int64_t> tokens(2);
  EXPECT_THAT(dataset.Read(0, absl::MakeSpan(tokens)),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("text.bin: ends at byte 0, before byte 4")));
}

TEST_F(IndexedDatasetTest, ReadingBeyondTheEndIsOutOfRange) {
  ASSERT_OK(Write({1, 2, 3}, 256));
  ASSERT_OK_AND_ASSIGN(const auto dataset, IndexedDataset::Open(prefix_));
  std::vector<int64_t> tokens(2);
  const auto is_out_of_range = StatusIs(absl::StatusCode::kOutOfRange);
  EXPECT_THAT(dataset.Read(2, absl::MakeSpan(tokens)), is_out_of_range);
  EXPECT_THAT(dataset.Read(-1, absl::MakeSpan(tokens)), is_out_of_range);
  EXPECT_THAT(
      dataset.Read(std::numeric_limits<int64_t>::max(), absl::MakeSpan(tokens)),
      is_out_of_range);
  tokens.resize(4);
  EXPECT_THAT(dataset.Read(0, absl::MakeSpan(tokens)), is_out_of_range);
  EXPECT_OK(dataset.Read(3, absl::Span<int64_t>()));
}

TEST_F(IndexedDatasetTest, TheVocabularyDecidesTheType) {
  ASSERT_OK(Write({65498}, 65499));
  ASSERT_OK_AND_ASSIGN(const auto narrow, IndexedDataset::Open(prefix_));
  EXPECT_EQ(narrow.index().type(), TokenType::kU16);
  EXPECT_THAT(ReadAll(narrow), ElementsAre(65498));
  ASSERT_OK(Write({65499}, 65500));
  ASSERT_OK_AND_ASSIGN(const auto wide, IndexedDataset::Open(prefix_));
  EXPECT_EQ(wide.index().type(), TokenType::kI32);
  EXPECT_THAT(ReadAll(wide), ElementsAre(65499));
}

TEST_F(IndexedDatasetTest, TokensOfEveryTypeAreRead) {
  struct Case {
    TokenType type;
    std::string bytes;
    std::vector<int64_t> tokens;
  };
  const std::vector<Case> cases = {
      {TokenType::kU8, {"\1\xff", 2}, {1, 255}},
      {TokenType::kI8, {"\1\xff", 2}, {1, -1}},
      {TokenType::kI16, {"\1\2\xff\xff", 4}, {513, -1}},
      {TokenType::kU16, {"\1\2\xff\xff", 4}, {513, 65535}},
      {TokenType::kI32, {"\1\2\0\0\xfe\xff\xff\xff", 8}, {513, -2}},
      {TokenType::kI64,
       {"\0\0\0\0\1\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff", 16},
       {int64_t{1} << 32, -1}},
  };
  for (const Case& c : cases) {
    WriteFile(".idx", IndexBytes(c.type, {1, 1}, {0, 2}));
    WriteFile(".bin", c.bytes);
    ASSERT_OK_AND_ASSIGN(const auto dataset, IndexedDataset::Open(prefix_));
    EXPECT_EQ(ReadAll(dataset), c.tokens) << Name(c.type);
  }
}

TEST_F(IndexedDatasetTest, DamageIsNamedWithItsFile) {
  EXPECT_THAT(IndexedDataset::Open(prefix_),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("text.idx")));
  ASSERT_OK(Write({1, 2, 3}, 256));
  std::filesystem::resize_file(prefix_ + ".bin", 5);
  EXPECT_THAT(IndexedDataset::Open(prefix_),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("text.bin: the file has 5 bytes"),
                             HasSubstr("the 3 u16 tokens"))));
  WriteFile(".idx", "MMIDIDX");
  EXPECT_THAT(IndexedDataset::Open(prefix_),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("text.idx")));
  std::filesystem::remove(prefix_ + ".bin");
  EXPECT_THAT(IndexedDataset::Open(prefix_),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("text.bin")));
}

TEST_F(IndexedDatasetTest, ATokenOutsideTheVocabularyIsNotWritten) {
  EXPECT_THAT(Write({1, 256}, 256),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("token 1 of sequence 0 is 256; the "
                                 "vocabulary is [0, 256)")));
  EXPECT_THAT(Write({-1}, 256), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_FALSE(std::filesystem::exists(prefix_ + ".bin"));
}

TEST_F(IndexedDatasetTest, AnOldDatasetStaysUntilTheNewOneIsFinished) {
  ASSERT_OK(Write({1, 2}, 256));
  {
    ASSERT_OK_AND_ASSIGN(auto writer,
                         IndexedDatasetWriter::Create(prefix_, 256));
    ASSERT_OK(writer->AddSequence({9}));
  }
  ASSERT_OK_AND_ASSIGN(const auto old, IndexedDataset::Open(prefix_));
  EXPECT_THAT(ReadAll(old), ElementsAre(1, 2));
  ASSERT_OK(Write({9}, 256));
  ASSERT_OK_AND_ASSIGN(const auto renewed, IndexedDataset::Open(prefix_));
  EXPECT_THAT(ReadAll(renewed), ElementsAre(9));
  // The files of the one that is open are still there for it.
  EXPECT_THAT(ReadAll(old), ElementsAre(1, 2));
}

}  // namespace
}  // namespace weft::data

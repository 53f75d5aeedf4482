#include "data/format/indexed_dataset_index.h"

#include <cstring>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::data {
namespace {

using ::testing::HasSubstr;

// Three sequences, of which the second is empty, in two documents.
std::string Sample() {
  return IndexBytes(TokenType::kU16, {3, 0, 2}, {0, 2, 3});
}

template <typename T>
std::string With(std::string bytes, size_t offset, T value) {
  std::memcpy(bytes.data() + offset, &value, sizeof(value));
  return bytes;
}

TEST(IndexedDatasetIndexTest, TheBytesAreThoseOfTheFormat) {
  const std::string expected(
      "MMIDIDX\0\0"
      "\1\0\0\0\0\0\0\0"
      "\10"
      "\1\0\0\0\0\0\0\0"
      "\2\0\0\0\0\0\0\0"
      "\5\0\0\0"
      "\0\0\0\0\0\0\0\0"
      "\0\0\0\0\0\0\0\0"
      "\1\0\0\0\0\0\0\0",
      34 + 4 + 8 + 16);
  EXPECT_EQ(IndexBytes(TokenType::kU16, {5}, {0, 1}), expected);
}

TEST(IndexedDatasetIndexTest, ReadsUnalignedArraysOfAnOddNumberOfSequences) {
  // One more byte in front, so that nothing is aligned.
  const std::string shifted = "x" + Sample();
  ASSERT_OK_AND_ASSIGN(
      const IndexedDatasetIndex index,
      IndexedDatasetIndex::Parse(absl::string_view(shifted).substr(1)));
  EXPECT_EQ(index.type(), TokenType::kU16);
  EXPECT_EQ(index.num_sequences(), 3);
  EXPECT_EQ(index.num_documents(), 2);
  EXPECT_EQ(index.num_tokens(), 5);
  EXPECT_EQ(index.SequenceLength(0), 3);
  EXPECT_EQ(index.SequenceLength(1), 0);
  EXPECT_EQ(index.SequenceLength(2), 2);
  EXPECT_EQ(index.DocumentBoundary(1), 2);
  EXPECT_EQ(index.DocumentBoundary(2), 3);
}

TEST(IndexedDatasetIndexTest, EveryIntegerTypeIsRead) {
  for (TokenType type : {TokenType::kU8, TokenType::kI8, TokenType::kI16,
                         TokenType::kI32, TokenType::kI64, TokenType::kU16}) {
    const std::string bytes = IndexBytes(type, {4, 4}, {0, 1, 2});
    ASSERT_OK_AND_ASSIGN(const IndexedDatasetIndex index,
                         IndexedDatasetIndex::Parse(bytes));
    EXPECT_EQ(index.type(), type);
    EXPECT_EQ(index.num_tokens(), 8);
  }
}

TEST(IndexedDatasetIndexTest, AnEmptyDatasetIsWhole) {
  const std::string bytes = IndexBytes(TokenType::kU8, {}, {0});
  ASSERT_OK_AND_ASSIGN(const IndexedDatasetIndex index,
                       IndexedDatasetIndex::Parse(bytes));
  EXPECT_EQ(index.num_documents(), 0);
  EXPECT_EQ(index.num_tokens(), 0);
}

struct Refused {
  const char* what;
  std::string bytes;
  absl::StatusCode code;
  const char* message;
};

class RefusedIndex : public ::testing::TestWithParam<Refused> {};

TEST_P(RefusedIndex, NamesFieldValueAndRule) {
  EXPECT_THAT(IndexedDatasetIndex::Parse(GetParam().bytes),
              StatusIs(GetParam().code, HasSubstr(GetParam().message)));
}

constexpr auto kDataLoss = absl::StatusCode::kDataLoss;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

INSTANTIATE_TEST_SUITE_P(
    IndexedDatasetIndexTest, RefusedIndex,
    ::testing::Values(
        Refused{"Empty", "", kDataLoss, "0 bytes; its header alone takes 34"},
        Refused{"Magic", With(Sample(), 0, 'm'), kDataLoss,
                "does not begin with MMIDIDX"},
        Refused{"MagicNul", With(Sample(), 8, 'x'), kDataLoss,
                "does not begin with MMIDIDX"},
        Refused{"Version", With<uint64_t>(Sample(), 9, 2), kInvalid,
                "version is 2"},
        Refused{"TypeZero", With<uint8_t>(Sample(), 17, 0), kDataLoss,
                "dtype code is 0"},
        Refused{"TypeNine", With<uint8_t>(Sample(), 17, 9), kDataLoss,
                "dtype code is 9"},
        Refused{"TypeF32", With<uint8_t>(Sample(), 17, 7), kInvalid,
                "dtype code 7 is f32"},
        Refused{"TypeF64", With<uint8_t>(Sample(), 17, 6), kInvalid,
                "dtype code 6 is f64"},
        Refused{"ManySequences", With<uint64_t>(Sample(), 18, ~uint64_t{0}),
                kDataLoss, "sequence_count=18446744073709551615 and"},
        Refused{"ManyDocuments",
                With<uint64_t>(Sample(), 26, uint64_t{1} << 61), kDataLoss,
                "document_count=2305843009213693952 do not fit"},
        Refused{"NoBoundary", With<uint64_t>(Sample(), 26, 0), kDataLoss,
                "document_count is 0"},
        Refused{"OneByteMore", Sample() + "x", kDataLoss, "the file has 95"},
        Refused{"Modes", Sample() + "\1\1\1", kInvalid, "multimodal"},
        Refused{"FirstOffset", With<int64_t>(Sample(), 46, 2), kDataLoss,
                "offset of sequence 0 is 2; sequences lie back to back, so it "
                "must be 0"},
        Refused{"OffsetFalls", With<int64_t>(Sample(), 62, 4), kDataLoss,
                "offset of sequence 2 is 4"},
        Refused{"OffsetNegative", With<int64_t>(Sample(), 54, -6), kDataLoss,
                "offset of sequence 1 is -6"},
        Refused{"LengthNegative", With<int32_t>(Sample(), 42, -1), kDataLoss,
                "length of sequence 2 is -1, a negative number"},
        Refused{"FirstBoundary", With<int64_t>(Sample(), 70, 1), kDataLoss,
                "document boundary 0 is 1; it must be 0"},
        Refused{"BoundaryFalls", With<int64_t>(Sample(), 78, -1), kDataLoss,
                "document boundary 1 is -1, below the one before it, 0"},
        Refused{"LastBoundary", With<int64_t>(Sample(), 86, 2), kDataLoss,
                "the last document boundary is 2; it must be "
                "sequence_count=3"}),
    [](const auto& info) { return info.param.what; });

TEST(IndexedDatasetIndexTest, AnIndexCutAnywhereIsRefused) {
  const std::string bytes = Sample();
  for (size_t size = 0; size < bytes.size(); ++size) {
    // A copy of the exact size, so that a read beyond it is seen.
    const std::vector<char> cut(bytes.begin(), bytes.begin() + size);
    EXPECT_THAT(
        IndexedDatasetIndex::Parse(absl::string_view(cut.data(), cut.size())),
        StatusIs(absl::StatusCode::kDataLoss))
        << "cut to " << size;
  }
}

TEST(IndexedDatasetIndexTest, DamageIsRefusedOrKeepsTheGuarantees) {
  const std::string bytes = Sample();
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (int value = 0; value < 256; ++value) {
      const std::string damaged = With(bytes, i, static_cast<char>(value));
      const auto index = IndexedDatasetIndex::Parse(damaged);
      if (!index.ok()) continue;
      int64_t tokens = 0;
      for (int64_t s = 0; s < index->num_sequences(); ++s) {
        EXPECT_GE(index->SequenceLength(s), 0);
        tokens += index->SequenceLength(s);
      }
      EXPECT_EQ(tokens, index->num_tokens()) << "byte " << i << "=" << value;
      EXPECT_EQ(index->DocumentBoundary(index->num_documents()),
                index->num_sequences());
    }
  }
}

}  // namespace
}  // namespace weft::data

#include "data/format/byte_tokenizer.h"

#include <string>

#include "absl/status/status.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ByteTokenizerTest, ATokenIsAByte) {
  EXPECT_THAT(EncodeBytes(absl::string_view("A\0\xff", 3)),
              ElementsAre(65, 0, 255));
}

TEST(ByteTokenizerTest, DecodingUndoesEncoding) {
  std::string all;
  for (int i = 0; i < kByteVocabulary; ++i) all.push_back(static_cast<char>(i));
  EXPECT_THAT(DecodeBytes(EncodeBytes(all)), IsOkAndHolds(all));
}

TEST(ByteTokenizerTest, WhatIsNoByteIsRefused) {
  EXPECT_THAT(DecodeBytes({1, 256}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("token 1 is 256")));
  EXPECT_THAT(DecodeBytes({-1}), StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace weft::data

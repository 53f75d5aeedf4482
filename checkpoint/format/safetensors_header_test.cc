#include "checkpoint/format/safetensors_header.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

TEST(SafetensorsHeaderTest, ParsesTensorsInOrderOfTheirBytes) {
  ASSERT_OK_AND_ASSIGN(
      const SafetensorsHeader header,
      ParseSafetensorsHeader(
          R"({"b":{"data_offsets":[8,14],"shape":[3],"dtype":"BF16"},)"
          R"("__metadata__":{"format":"pt"},)"
          R"("a\u00e9":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]}}  )"));
  ASSERT_EQ(header.entries.size(), 2);
  EXPECT_EQ(header.entries[0].name, "a\xc3\xa9");
  EXPECT_EQ(header.entries[0].type, SafetensorsType::kF32);
  EXPECT_THAT(header.entries[0].shape, ElementsAre(2, 1));
  EXPECT_EQ(header.entries[1].name, "b");
  EXPECT_EQ(header.entries[1].begin, 8);
  EXPECT_EQ(header.entries[1].end, 14);
  EXPECT_THAT(header.metadata, ElementsAre(Pair("format", "pt")));
  EXPECT_EQ(header.data_bytes, 14);
}

TEST(SafetensorsHeaderTest, ScalarsAndEmptyTensorsAreAllowed) {
  ASSERT_OK_AND_ASSIGN(
      const SafetensorsHeader header,
      ParseSafetensorsHeader(
          R"({"scalar":{"dtype":"F64","shape":[],"data_offsets":[0,8]},)"
          R"("empty":{"dtype":"F32","shape":[4,0],"data_offsets":[8,8]},)"
          R"("none":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)"
          R"("packed":{"dtype":"F4","shape":[2],"data_offsets":[8,9]}})"));
  EXPECT_EQ(header.entries.size(), 4);
  EXPECT_EQ(header.data_bytes, 9);
}

TEST(SafetensorsHeaderTest, AHeaderMayHoldNothing) {
  ASSERT_OK_AND_ASSIGN(const SafetensorsHeader header,
                       ParseSafetensorsHeader("{}      "));
  EXPECT_THAT(header.entries, IsEmpty());
  EXPECT_EQ(header.data_bytes, 0);
}

struct Refused {
  const char* what;
  std::string text;
  const char* message;
};

std::string Tensor(const std::string& body) {
  return absl::StrCat("{\"t\":{", body, "}}");
}

class RefusedHeader : public ::testing::TestWithParam<Refused> {};

TEST_P(RefusedHeader, NamesTheRule) {
  EXPECT_THAT(
      ParseSafetensorsHeader(GetParam().text),
      StatusIs(absl::StatusCode::kDataLoss, HasSubstr(GetParam().message)));
}

INSTANTIATE_TEST_SUITE_P(
    Form, RefusedHeader,
    ::testing::Values(
        Refused{"Nothing", "", "does not begin with {"},
        Refused{"LeadingSpace", " {}", "does not begin with {"},
        Refused{"Array", "[]", "does not begin with {"},
        Refused{"Unclosed", "{\"t\":", "not valid JSON near byte"},
        Refused{"Trailing", "{}x", "not valid JSON near byte"},
        Refused{"NotUtf8", "{\"\xff\":1}", "not valid JSON near byte"},
        Refused{"Comment", "{/**/}", "not valid JSON near byte"},
        Refused{"TensorIsNumber", R"({"t":1})", "\"t\": the number 1"},
        Refused{"TensorIsNull", R"({"t":null})", "\"t\": null"},
        Refused{"Deep", R"({"t":{"dtype":{}}})", "is or holds an object"},
        Refused{"DeepShape", R"({"t":{"shape":[[1]]}})", "holds an array"},
        Refused{"UnknownKey", R"({"t":{"kind":1}})", "\"kind\" is not known"},
        Refused{"TwoNames",
                R"({"t":{"dtype":"U8","shape":[0],)"
                R"("data_offsets":[0,0]},"t":{}})",
                "\"t\": the name occurs twice"},
        Refused{"TwoKeys", R"({"t":{"dtype":"U8","dtype":"U8"}})",
                "\"dtype\" occurs twice"},
        Refused{"TwoMetadata", R"({"__metadata__":{"a":"1","a":"2"}})",
                "\"a\" occurs twice"},
        Refused{"MetadataNumber", R"({"__metadata__":{"a":1}})",
                "the number 1 is not allowed here"},
        Refused{"MetadataDeep", R"({"__metadata__":{"a":{}}})",
                "an object is not allowed here"}),
    [](const auto& info) { return info.param.what; });

INSTANTIATE_TEST_SUITE_P(
    Tensor, RefusedHeader,
    ::testing::Values(
        Refused{"NoDtype", Tensor(R"("shape":[1],"data_offsets":[0,1])"),
                "\"dtype\" is missing"},
        Refused{"NoShape", Tensor(R"("dtype":"U8","data_offsets":[0,1])"),
                "\"shape\" is missing"},
        Refused{"NoOffsets", Tensor(R"("dtype":"U8","shape":[1])"),
                "\"data_offsets\" is missing"},
        Refused{"UnknownDtype", Tensor(R"("dtype":"F128")"),
                "dtype \"F128\" is not known"},
        Refused{"DtypeNumber", Tensor(R"("dtype":8)"),
                "\"dtype\" is or holds the number 8"},
        Refused{"ShapeString", Tensor(R"("shape":"1")"),
                "\"shape\" is or holds a string"},
        Refused{"NegativeShape", Tensor(R"("shape":[-1])"),
                "the negative number -1"},
        Refused{"FractionalShape", Tensor(R"("shape":[1.5])"),
                "the number 1.5"},
        Refused{"HugeNumber", Tensor(R"("shape":[9223372036854775808])"),
                "9223372036854775808 is above"},
        Refused{"HugerNumber", Tensor(R"("shape":[99999999999999999999])"),
                "the number 99999999999999999999"},
        Refused{"OneOffset",
                Tensor(R"("dtype":"U8","shape":[1],"data_offsets":[0])"),
                "data_offsets has 1 numbers"},
        Refused{"ThreeOffsets",
                Tensor(R"("dtype":"U8","shape":[1],"data_offsets":[0,1,2])"),
                "data_offsets has 3 numbers"},
        Refused{"TooShort",
                Tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])"),
                "do not hold the 8 bytes of F32 [2]"},
        Refused{"Backwards",
                Tensor(R"("dtype":"U8","shape":[1],"data_offsets":[1,0])"),
                "[1, 0] do not hold"},
        Refused{"Overflow",
                Tensor(R"("dtype":"U8","shape":[4294967296,4294967296],)"
                       R"("data_offsets":[0,0])"),
                "larger than 2^63 bits"},
        Refused{"HalfByte",
                Tensor(R"("dtype":"F4","shape":[3],"data_offsets":[0,1])"),
                "not whole bytes"},
        Refused{"HoleInFront",
                Tensor(R"("dtype":"U8","shape":[1],"data_offsets":[1,2])"),
                "leaving a hole"},
        Refused{"Hole",
                R"({"a":{"dtype":"U8","shape":[2],)"
                R"("data_offsets":[0,2]},"b":{"dtype":"U8",)"
                R"("shape":[1],"data_offsets":[3,4]}})",
                "\"b\": data begins at 3, leaving a hole"},
        Refused{"Overlap",
                R"({"a":{"dtype":"U8","shape":[2],)"
                R"("data_offsets":[0,2]},"b":{"dtype":"U8",)"
                R"("shape":[2],"data_offsets":[1,3]}})",
                "\"b\": data begins at 1, inside the tensor before it"}),
    [](const auto& info) { return info.param.what; });

TEST(SafetensorsHeaderTest, TextOfAHeaderParsesToTheSameHeader) {
  SafetensorsHeader header;
  header.metadata = {{"format", "pt"}, {"quote\"", "line\n"}};
  header.entries = {{"x", SafetensorsType::kI64, {1, 2}, 0, 16},
                    {"\xe2\x82\xac\\", SafetensorsType::kU8, {}, 16, 17}};
  ASSERT_OK_AND_ASSIGN(const std::string text, SafetensorsHeaderText(header));
  EXPECT_EQ(text.size() % 8, 0);
  ASSERT_OK_AND_ASSIGN(const SafetensorsHeader parsed,
                       ParseSafetensorsHeader(text));
  EXPECT_EQ(parsed.metadata, header.metadata);
  ASSERT_EQ(parsed.entries.size(), 2);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(parsed.entries[i].name, header.entries[i].name);
    EXPECT_EQ(parsed.entries[i].type, header.entries[i].type);
    EXPECT_EQ(parsed.entries[i].shape, header.entries[i].shape);
    EXPECT_EQ(parsed.entries[i].begin, header.entries[i].begin);
    EXPECT_EQ(parsed.entries[i].end, header.entries[i].end);
  }
}

TEST(SafetensorsHeaderTest, EveryTypeHasItsName) {
  for (int i = 0; i <= static_cast<int>(SafetensorsType::kU64); ++i) {
    const auto type = static_cast<SafetensorsType>(i);
    EXPECT_EQ(SafetensorsTypeByName(Name(type)), type) << Name(type);
  }
  EXPECT_EQ(SafetensorsTypeByName("f32"), std::nullopt);
}

TEST(SafetensorsHeaderTest, ComputedTypesKeepTheirSize) {
  for (DType dtype :
       {DType::kF32, DType::kF64, DType::kBf16, DType::kI32, DType::kI64}) {
    const SafetensorsType type = ToSafetensorsType(dtype);
    EXPECT_EQ(BitsOf(type), 8 * SizeOf(dtype)) << Name(dtype);
    EXPECT_EQ(ToDType(type), dtype) << Name(dtype);
  }
  EXPECT_EQ(ToDType(SafetensorsType::kF4), std::nullopt);
}

// Every text that is cut, or has one byte changed, parses or fails; it never
// crashes, and what parses keeps the guarantees.
TEST(SafetensorsHeaderTest, DamagedTextNeverBreaksTheGuarantees) {
  const std::string text =
      R"({"__metadata__":{"k":"v"},"a":{"dtype":"F32","shape":[2,1],)"
      R"("data_offsets":[0,8]},"b":{"dtype":"I8","shape":[],)"
      R"("data_offsets":[8,9]}})";
  const std::string alphabet("\0\"\\{}[]:,-0189eE.u\x80\xff af", 24);
  for (size_t i = 0; i < text.size(); ++i) {
    EXPECT_FALSE(ParseSafetensorsHeader(text.substr(0, i)).ok()) << i;
    for (char c : alphabet) {
      std::string damaged = text;
      damaged[i] = c;
      const auto header = ParseSafetensorsHeader(damaged);
      if (!header.ok()) continue;
      int64_t end = 0;
      for (const SafetensorsEntry& entry : header->entries) {
        EXPECT_EQ(entry.begin, end) << damaged;
        end = entry.end;
        EXPECT_THAT(SafetensorsBytes(entry.type, entry.shape),
                    IsOkAndHolds(entry.end - entry.begin))
            << damaged;
      }
      EXPECT_EQ(header->data_bytes, end) << damaged;
    }
  }
}

}  // namespace
}  // namespace weft::checkpoint

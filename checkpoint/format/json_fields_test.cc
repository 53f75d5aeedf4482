#include "checkpoint/format/json_fields.h"

#include <cmath>
#include <string>

#include "absl/status/status.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::checkpoint {
namespace {

using ::nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string Nested(int levels) {
  std::string text = R"({"a":)";
  for (int i = 1; i < levels; ++i) text += "[";
  for (int i = 1; i < levels; ++i) text += "]";
  return levels == 1 ? "{}" : text + "}";
}

TEST(ParseJsonObjectTest, TakesObjects) {
  EXPECT_THAT(ParseJsonObject(R"({"a": [1, {"a": 2}], "b": {"a": 3}})", 100),
              IsOk());
  EXPECT_THAT(ParseJsonObject(Nested(16), 100), IsOk());
  EXPECT_THAT(ParseJsonObject("{} ", 3), IsOk());
}

TEST(ParseJsonObjectTest, RefusesWhatIsNone) {
  const auto refuses = [](const std::string& text, const char* message) {
    EXPECT_THAT(
        ParseJsonObject(text, 100),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)))
        << text;
  };
  refuses("", "not valid JSON near byte 1");
  refuses("{} x", "not valid JSON near byte 4");
  refuses("{\"a\": NaN}", "not valid JSON");
  refuses("{\"a\": 1e999}", "not valid JSON");
  refuses("{\"\xff\": 1}", "not valid JSON");
  refuses("[]", "not a JSON object");
  refuses("7", "not a JSON object");
  refuses(R"({"a": 1, "b": 2, "a": 1})", "the key \"a\" occurs twice");
  refuses(R"({"a": [{"b": 1, "b": 2}]})", "the key \"b\" occurs twice");
  refuses(Nested(17), "nested more than 16 levels deep");
  refuses(std::string(101, ' '), "101 bytes of JSON; at most 100 are allowed");
}

TEST(ShortTextTest, IsAsciiAndShort) {
  EXPECT_EQ(ShortText(json::parse(R"({"a": "\u00e9"})")), R"({"a":"\u00e9"})");
  EXPECT_EQ(ShortText(json(std::string(1000, 'x'))),
            "\"" + std::string(79, 'x') + "...");
}

TEST(FieldReaderTest, ReadsFieldsAndTheirFallbacks) {
  const json object = json::parse(
      R"({"i": 7, "b": true, "x": 0.5, "whole": 2, "none": null, "o": {}})");
  FieldReader fields(object);
  EXPECT_EQ(fields.Integer({"i", 1, 0, 10}), 7);
  EXPECT_EQ(fields.Integer({"absent", -1, 0, 10}), -1);
  EXPECT_EQ(fields.Integer({"none", -2, 0, 10, /*nullable=*/true}), -2);
  EXPECT_TRUE(fields.Boolean("b", false));
  EXPECT_TRUE(fields.Boolean("absent", true));
  EXPECT_EQ(fields.Number("x", 1), 0.5);
  EXPECT_EQ(fields.Number("whole", 1), 2);
  EXPECT_EQ(fields.Number("none", 1, /*nullable=*/true), 1);
  EXPECT_NE(fields.Take("o"), nullptr);
  EXPECT_NE(fields.Take("none"), nullptr);
  EXPECT_EQ(fields.TakeUnlessNull("none"), nullptr);
  EXPECT_EQ(fields.Take("absent"), nullptr);
  EXPECT_TRUE(fields.IsNull("none"));
  EXPECT_FALSE(fields.IsNull("absent"));
  EXPECT_TRUE(fields.IsGiven("none"));
  EXPECT_FALSE(fields.IsGiven("absent"));
  fields.RefuseTheRest("is not known");
  EXPECT_THAT(fields.refusals(), IsEmpty());
}

TEST(FieldReaderTest, ReadsListsOfNumbersThatMayBeInfinite) {
  const json object = json::parse(
      R"({"a": [0, {"__float__": "Infinity"}], "b": [1], "c": 1,
          "d": [0, {"__float__": "NaN"}], "e": [0, "1"]})");
  FieldReader fields(object);
  EXPECT_THAT(fields.Numbers("a", {1, 2}), ElementsAre(0, INFINITY));
  EXPECT_THAT(fields.Numbers("absent", {1, 2}), ElementsAre(1, 2));
  EXPECT_THAT(fields.refusals(), IsEmpty());
  for (const char* name : {"b", "c", "d", "e"}) {
    EXPECT_THAT(fields.Numbers(name, {1, 2}), ElementsAre(1, 2)) << name;
    EXPECT_FALSE(fields.AreFine({name})) << name;
  }
}

TEST(FieldReaderTest, CollectsRefusals) {
  const json object = json::parse(
      R"({"i": 11, "b": 0, "x": {"__float__": "NaN"}, "none": null,
          "rest": [1], "inner": {"y": 1}})");
  FieldReader fields(object);
  EXPECT_EQ(fields.Integer({"i", 1, 0, 10}), 1);
  EXPECT_EQ(fields.Integer({"none", 3, 0, 10}), 3);
  EXPECT_TRUE(fields.Boolean("b", true));
  EXPECT_EQ(fields.Number("x", 2), 2);
  FieldReader inner(*fields.Take("inner"), "inner.");
  inner.RefuseTheRest("is not known");
  fields.Append(inner);
  fields.Refuse("absent", "must be given");
  fields.RefuseTheRest("is not known");
  EXPECT_THAT(
      fields.refusals(),
      ElementsAre("i=11: must be an integer of 0 to 10",
                  "none=null: must be an integer of 0 to 10",
                  "b=0: must be true or false",
                  "x={\"__float__\":\"NaN\"}: must be a finite number",
                  "inner.y=1: is not known", "absent is absent: must be given",
                  "rest=[1]: is not known"));
  EXPECT_FALSE(fields.AreFine({"rest", "i"}));
  EXPECT_TRUE(fields.AreFine({"inner"}));
}

TEST(FieldReaderTest, TellsAllRefusalsAtOnceUpToALimit) {
  json object = json::object();
  FieldReader none(object);
  EXPECT_OK(none.Refusals());
  for (int i = 0; i < 70; ++i) object[std::to_string(100 + i)] = i;
  FieldReader fields(object);
  fields.Require({"size", "100"});
  fields.RefuseTheRest("is not known");
  EXPECT_THAT(fields.Refusals(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       ::testing::AllOf(
                           ::testing::StartsWith("size is absent: must be "
                                                 "given; 100=0: is not known"),
                           ::testing::EndsWith("; and 7 more"))));
}

}  // namespace
}  // namespace weft::checkpoint

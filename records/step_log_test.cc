#include "records/step_log.h"

#include <fstream>
#include <limits>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace weft::records {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string ReadFile(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(StepLogTest, LineIsJsonWithEveryFieldAndExactNumbers) {
  v1::StepMetrics step;
  step.set_step(12);
  step.set_loss(0.1 + 0.2);
  step.set_ep_wire_bytes(int64_t{1} << 40);
  const std::string line = ToJsonLine(step);
  const nlohmann::json parsed =
      nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(parsed.is_object()) << line;
  EXPECT_EQ(parsed["kind"], "step");
  EXPECT_EQ(parsed["step"], 12);
  EXPECT_EQ(parsed["loss"], 0.1 + 0.2);
  EXPECT_EQ(parsed["ep_wire_bytes"], int64_t{1} << 40);
  EXPECT_EQ(parsed.size(), v1::StepMetrics::descriptor()->field_count() + 1);
}

TEST(StepLogTest, RouterLossesAreAList) {
  v1::StepMetrics step;
  EXPECT_THAT(ToJsonLine(step), HasSubstr("\"router_losses\":[]"));
  v1::RouterLoss& loss = *step.add_router_losses();
  loss.set_layer(1);
  loss.set_name("aux");
  loss.set_value(1.25);
  step.add_router_losses()->set_layer(2);
  EXPECT_THAT(ToJsonLine(step),
              HasSubstr("\"router_losses\":[{\"layer\":1,\"name\":\"aux\","
                        "\"value\":1.25},{\"layer\":2,\"name\":\"\","
                        "\"value\":0}]"));
}

TEST(StepLogTest, NumbersOfLayersAreAList) {
  v1::StepMetrics step;
  EXPECT_THAT(ToJsonLine(step), HasSubstr("\"layer_imbalances\":[]"));
  step.add_layer_imbalances(1.5);
  step.add_layer_imbalances(std::numeric_limits<double>::infinity());
  EXPECT_THAT(ToJsonLine(step), HasSubstr("\"layer_imbalances\":[1.5,null]"));
}

TEST(StepLogTest, WhatIsNotFiniteIsNull) {
  v1::EvalMetrics eval;
  eval.set_loss(std::numeric_limits<double>::quiet_NaN());
  EXPECT_THAT(ToJsonLine(eval), HasSubstr("\"loss\":null"));
  eval.set_loss(-std::numeric_limits<double>::infinity());
  EXPECT_THAT(ToJsonLine(eval), HasSubstr("\"loss\":null"));
}

// A value for every field, whatever its type; texts are what JSON must escape.
void Fill(google::protobuf::Message& message) {
  using google::protobuf::FieldDescriptor;
  const google::protobuf::Reflection& r = *message.GetReflection();
  const google::protobuf::Descriptor& type = *message.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    const bool many = field.is_repeated();
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
      const std::string text = "a \"name\" \\ of\ntwo lines\x01";
      many ? r.AddString(&message, &field, text)
           : r.SetString(&message, &field, text);
    } else if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      Fill(many ? *r.AddMessage(&message, &field)
                : *r.MutableMessage(&message, &field));
    }
  }
}

TEST(StepLogTest, AnyMetricsMakeALineOfJson) {
  v1::StepMetrics step;
  Fill(step);
  v1::EvalMetrics eval;
  Fill(eval);
  for (const std::string& line : {ToJsonLine(step), ToJsonLine(eval)}) {
    EXPECT_THAT(line, Not(HasSubstr("\n")));
    EXPECT_TRUE(nlohmann::json::accept(line)) << line;
  }
  const nlohmann::json parsed = nlohmann::json::parse(
      ToJsonLine(step), nullptr, /*allow_exceptions=*/false);
  EXPECT_EQ(parsed["router_losses"][0]["name"],
            "a \"name\" \\ of\ntwo lines\x01");
}

TEST(StepLogTest, GoesOnAfterTheLastWholeLine) {
  const std::string path = absl::StrCat(testing::TempDir(), "/cut.jsonl");
  std::ofstream(path) << "one\ntw";
  ASSERT_OK_AND_ASSIGN(auto log, StepLog::Append(path));
  ASSERT_OK(log->WriteLine("two"));
  EXPECT_EQ(ReadFile(path), "one\ntwo\n");
  const std::string fresh = absl::StrCat(testing::TempDir(), "/fresh.jsonl");
  ASSERT_OK_AND_ASSIGN(auto begun, StepLog::Append(fresh));
  ASSERT_OK(begun->WriteLine("one"));
  EXPECT_EQ(ReadFile(fresh), "one\n");
  EXPECT_THAT(StepLog::Append("/proc/none/steps.jsonl"),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST(StepLogTest, LinesAreInTheFileAtOnceAndReplaceAnOlderFile) {
  const std::string path = absl::StrCat(testing::TempDir(), "/steps.jsonl");
  {
    ASSERT_OK_AND_ASSIGN(auto old, StepLog::Create(path));
    ASSERT_OK(old->WriteLine("old"));
  }
  ASSERT_OK_AND_ASSIGN(auto log, StepLog::Create(path));
  ASSERT_OK(log->WriteLine("one"));
  EXPECT_EQ(ReadFile(path), "one\n");
  ASSERT_OK(log->WriteLine("two"));
  EXPECT_EQ(ReadFile(path), "one\ntwo\n");
}

TEST(StepLogTest, SaysWhichFileCannotBeWritten) {
  EXPECT_THAT(StepLog::Create("/proc/none/steps.jsonl"),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       StartsWith("cannot write step log /proc/none/")));
  ASSERT_OK_AND_ASSIGN(auto log, StepLog::Create("/dev/full"));
  EXPECT_THAT(log->WriteLine("x"), StatusIs(absl::StatusCode::kDataLoss));
}

}  // namespace
}  // namespace weft::records

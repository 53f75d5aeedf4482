#include "records/step_log.h"

#include <fstream>
#include <limits>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace weft::records {
namespace {

using ::testing::HasSubstr;
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

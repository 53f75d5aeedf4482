#include "client/output.h"

#include <limits>

#include "gtest/gtest.h"

namespace weft::client {
namespace {

TEST(OutputTest, TablesAlignTheirColumns) {
  TextTable table({"ID", "STATE", "STEP"});
  table.AddRow({"moe-text-1", "running", "5"});
  table.AddRow({"x", "", ""});
  EXPECT_EQ(table.ToString(),
            "ID          STATE    STEP\n"
            "moe-text-1  running  5\n"
            "x\n");
}

TEST(OutputTest, TablesCannotSteerTheTerminal) {
  TextTable table({"HOST"});
  table.AddRow({"h\x1b]0;x\a"});
  EXPECT_EQ(table.ToString(), "HOST\nh\\x1b]0;x\\x07\n");
  Record record;
  record.Add("reason", "a\nb\r");
  EXPECT_EQ(record.ToString(Format::kTable), "reason:  a\\nb\\x0d\n");
}

TEST(OutputTest, RecordsPrintInEveryFormat) {
  Record record;
  record.Add("text", "a \"b\"").Add("count", int64_t{1} << 60);
  record.Add("share", 0.5).Add("fits", true);
  record.Add("loss", std::numeric_limits<double>::infinity());
  EXPECT_EQ(record.ToString(Format::kTable),
            "text:   a \"b\"\n"
            "count:  1152921504606846976\n"
            "share:  0.5\n"
            "fits:   true\n"
            "loss:   inf\n");
  EXPECT_EQ(record.ToString(Format::kJson),
            "{\n"
            "  \"text\": \"a \\\"b\\\"\",\n"
            "  \"count\": 1152921504606846976,\n"
            "  \"share\": 0.5,\n"
            "  \"fits\": true,\n"
            "  \"loss\": \"inf\"\n"
            "}\n");
  EXPECT_EQ(record.ToString(Format::kYaml),
            "text: \"a \\\"b\\\"\"\n"
            "count: 1152921504606846976\n"
            "share: 0.5\n"
            "fits: true\n"
            "loss: \"inf\"\n");
}

TEST(OutputTest, NumbersAreScaledForPeople) {
  EXPECT_EQ(Human(0), "0");
  EXPECT_EQ(Human(999), "999");
  EXPECT_EQ(Human(12.34), "12.3");
  EXPECT_EQ(Human(12345), "12.3k");
  EXPECT_EQ(Human(234567), "235k");
  EXPECT_EQ(Human(4.2e9), "4.2G");
  EXPECT_EQ(HumanBytes(1023), "1023 B");
  EXPECT_EQ(HumanBytes(1536), "1.5 KiB");
  EXPECT_EQ(HumanBytes(int64_t{5} << 40), "5.0 TiB");
  EXPECT_EQ(HumanSeconds(48.4), "0:48");
  EXPECT_EQ(HumanSeconds(3723), "1:02:03");
  EXPECT_EQ(HumanSeconds(std::numeric_limits<double>::quiet_NaN()), "-");
}

}  // namespace
}  // namespace weft::client

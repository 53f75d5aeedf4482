// How weftctl reads its command line.

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/cli_fixture.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::client {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using UsageTest = CliTest;

auto IsUsage(const std::string& message) {
  return AllOf(::testing::Field(&Result::code, 2),
               ::testing::Field(&Result::out, ""),
               ::testing::Field(&Result::err, HasSubstr(message)));
}

TEST_F(UsageTest, WrongUsageExitsTwo) {
  EXPECT_THAT(Run(""), IsUsage("A subcommand is required"));
  EXPECT_THAT(Run("sumbit"),
              IsUsage("unknown command \"sumbit\"; did you mean \"submit\"?"));
  EXPECT_THAT(Run("get job_s"), IsUsage("unknown command \"job_s\""));
  EXPECT_THAT(Run("get jobs --colour"), IsUsage("--colour"));
  EXPECT_THAT(Run("get jobs --colour"),
              IsUsage("\nhint: weftctl get jobs --help\n"));
  EXPECT_THAT(Run("get jobs -o xml"), IsUsage("xml"));
  EXPECT_THAT(Run("submit"), IsUsage("--file is required"));
  EXPECT_THAT(Run("wait x --timeout 5"), IsUsage("not a duration"));
  EXPECT_THAT(Run("plan"), IsUsage("either --file or a job id"));
  EXPECT_THAT(Run("plan moe-1 --set steps=3"), IsUsage("--set needs --file"));
  EXPECT_THAT(Run("cancel moe-1"), IsUsage("needs --yes"));
  EXPECT_THAT(Run("get jobs"), IsUsage("no coordinator is named"));
}

TEST_F(UsageTest, HelpExitsZero) {
  const Result help = Run("submit --help");
  EXPECT_EQ(help.code, 0);
  EXPECT_THAT(help.out, HasSubstr("--request-id"));
  EXPECT_THAT(Run("calibrate --help").out, HasSubstr("of a dozen jobs"));
  EXPECT_THAT(Run("golden --help").out,
              HasSubstr("Order of node phases: sequential, combined_1f1b"));
  EXPECT_EQ(help.err, "");
}

TEST_F(UsageTest, HelpOfParitySaysWhatCannotVaryYet) {
  const Result help = Run("parity --help");
  // It is broken into lines.
  const std::vector<std::string> words =
      absl::StrSplit(help.out, absl::ByAnyChar(" \n"), absl::SkipEmpty());
  EXPECT_THAT(absl::StrJoin(words, " "),
              HasSubstr("dispatcher, and recompute; commas between"));
}

TEST_F(UsageTest, EmptyValuesAreRefusedByName) {
  const std::string message = ": needs a value that is not empty\n";
  EXPECT_THAT(Run("--coordinator= get jobs"),
              IsUsage("error: --coordinator" + message));
  EXPECT_THAT(Run("--coordinator '' get jobs"),
              IsUsage("error: --coordinator" + message));
  EXPECT_THAT(Run("submit --request-id= -f examples/moe_text.yaml"),
              IsUsage("error: --request-id" + message));
  EXPECT_THAT(Run("submit --request-id '' -f examples/moe_text.yaml"),
              IsUsage("error: --request-id" + message));
  EXPECT_THAT(Run("get jobs -o ''"), IsUsage("error: --output" + message));
  EXPECT_THAT(Run("get job ''"), IsUsage("error: job" + message));
}

TEST_F(UsageTest, FormatsHaveNames) {
  EXPECT_THAT(Run("get jobs -o jsn"),
              IsUsage("error: --output: jsn is not one of table, json, yaml, "
                      "name\n"));
  EXPECT_THAT(Run("get jobs -o 0"), IsUsage("--output: 0 is not one of"));
}

TEST_F(UsageTest, NumbersHaveRanges) {
  EXPECT_THAT(
      Run("get jobs --limit=-1"),
      IsUsage("error: --limit: -1 is not an integer in [0, 1000000]\n"));
  EXPECT_THAT(Run("get jobs --limit 1e3"), IsUsage("--limit: 1e3 is not"));
  EXPECT_THAT(Run("get jobs --limit 0x10"), IsUsage("--limit: 0x10 is not"));
  EXPECT_THAT(Run("plan moe-1 --rank=99999999999"),
              IsUsage("--rank: 99999999999 is not an integer in [0, 65535]\n"));
  EXPECT_THAT(Run("watch moe-1 --every-steps=-3"),
              IsUsage("--every-steps: -3 is not an integer in [0, 100000000]"));
  for (const char* value : {"nan", "-1", "inf", "x"}) {
    EXPECT_THAT(Run(absl::StrCat("watch moe-1 --every-seconds=", value)),
                IsUsage(absl::StrCat("--every-seconds: ", value,
                                     " is not a number in [0, 1e+09]\n")));
    EXPECT_THAT(Run(absl::StrCat("params diff a b --tolerance ", value)),
                IsUsage(absl::StrCat("--tolerance: ", value,
                                     " is not a number in [0, 2]\n")));
  }
}

TEST_F(UsageTest, WhatIsSentIsUtf8) {
  EXPECT_THAT(Run("cancel moe-1 --yes --reason $(printf 'caf\\351')"),
              IsUsage("--reason: caf\\xe9 is not UTF-8\n"));
}

}  // namespace
}  // namespace weft::client

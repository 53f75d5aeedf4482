#include "base/flag_parser.h"

#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

ABSL_FLAG(std::string, test_text, "a", "A text.");
ABSL_FLAG(int, test_number, 3, "A number.");
ABSL_FLAG(bool, test_switch, true, "A switch.");
ABSL_FLAG(absl::Duration, test_time, absl::Seconds(4), "A time.");

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

absl::StatusOr<FlagResult> Parse(const std::vector<std::string>& args) {
  return ParseFlags(args, "flag_parser_test.cc");
}

TEST(FlagParserTest, SetsFlags) {
  absl::FlagSaver saver;
  EXPECT_THAT(Parse({"--test_text=b=c", "--test_number", "-7",
                     "--notest_switch", "--test_time=250ms"}),
              IsOkAndHolds(FlagResult::kRun));
  EXPECT_EQ(absl::GetFlag(FLAGS_test_text), "b=c");
  EXPECT_EQ(absl::GetFlag(FLAGS_test_number), -7);
  EXPECT_FALSE(absl::GetFlag(FLAGS_test_switch));
  EXPECT_EQ(absl::GetFlag(FLAGS_test_time), absl::Milliseconds(250));
  EXPECT_OK(Parse({"--test_switch", "--test_text="}));
  EXPECT_TRUE(absl::GetFlag(FLAGS_test_switch));
  EXPECT_EQ(absl::GetFlag(FLAGS_test_text), "");
}

TEST(FlagParserTest, RefusesWhatItDoesNotUnderstand) {
  absl::FlagSaver saver;
  const std::vector<std::vector<std::string>> wrong = {
      {"--bogus"},
      {"--bogus=1"},
      {"-test_number=1"},
      {"job.yaml"},
      {"--"},
      {"--test_number=x"},
      {"--test_text"},
      {"--notest_number"},
      {"--notest_switch=1"},
      {"--test_time=7"},
  };
  for (const auto& args : wrong) {
    EXPECT_THAT(Parse(args), StatusIs(absl::StatusCode::kInvalidArgument))
        << args[0];
  }
  EXPECT_THAT(Parse({"--bogus"}), StatusIs(absl::StatusCode::kInvalidArgument,
                                           "unknown flag --bogus; see --help"));
}

TEST(FlagParserTest, KnowsOnlyTheFlagsOfItsSource) {
  EXPECT_THAT(ParseFlags({"--test_text=b"}, "coordinator/main.cc"),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(FlagParserTest, Helps) {
  EXPECT_THAT(Parse({"--help"}), IsOkAndHolds(FlagResult::kHelp));
  EXPECT_THAT(DescribeFlags("flag_parser_test.cc"),
              AllOf(HasSubstr("--test_number  A number. Default: 3.\n"),
                    HasSubstr("--test_time  A time. Default: 4s.\n")));
}

}  // namespace
}  // namespace weft

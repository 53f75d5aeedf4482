#include "base/describe.h"

#include <limits>
#include <string>

#include "gtest/gtest.h"

namespace weft {
namespace {

TEST(DescribeTest, FormatsNumbers) {
  EXPECT_EQ(FormatNumber(0), "0");
  EXPECT_EQ(FormatNumber(-1), "-1");
  EXPECT_EQ(FormatNumber(1048576), "1048576");
  EXPECT_EQ(FormatNumber(0.5), "0.5");
  EXPECT_EQ(FormatNumber(1e-5), "1e-05");
  EXPECT_EQ(FormatNumber(std::numeric_limits<double>::infinity()), "inf");
  EXPECT_EQ(FormatNumber(std::numeric_limits<double>::quiet_NaN()), "nan");
}

TEST(DescribeTest, ShortensToPrintableAscii) {
  EXPECT_EQ(Shortened("say \"a\"\nb", 20), "say \"a\" b");
  EXPECT_EQ(Shortened("\x01", 20), "\\x01");
  EXPECT_EQ(Shortened("abcdef", 6), "abcdef");
  EXPECT_EQ(Shortened("abcdefg", 6), "abc...");
  EXPECT_EQ(Shortened(std::string(1 << 20, 'x'), 40).size(), 40);
  EXPECT_EQ(Quoted(std::string(100, 'x')).size(), 50);
}

TEST(DescribeTest, ReasonsAreOptionalAndCut) {
  EXPECT_EQ(WithReason("cancelled", ""), "cancelled");
  EXPECT_EQ(WithReason("cancelled", "too slow"), "cancelled: too slow");
  EXPECT_EQ(WithReason("", std::string(1 << 20, 'x')).size(), 502);
}

TEST(DescribeTest, ListsDivisors) {
  EXPECT_EQ(Divisors(1, 1), "1");
  EXPECT_EQ(Divisors(12, 12), "1, 2, 3, 4, 6, 12");
  EXPECT_EQ(Divisors(12, 5), "1, 2, 3, 4");
  EXPECT_EQ(Divisors(65536, 65536),
            "..., 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, "
            "65536");
  EXPECT_EQ(CommonDivisors(8, 12), "1, 2, 4");
}

}  // namespace
}  // namespace weft

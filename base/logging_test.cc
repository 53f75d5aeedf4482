#include "base/logging.h"

#include <string>

#include "gtest/gtest.h"

namespace weft {
namespace {

TEST(InitLoggingTest, SetsVerbosityEachTime) {
  InitLogging("logging_test", 1);
  EXPECT_TRUE(VLOG_IS_ON(1));
  EXPECT_FALSE(VLOG_IS_ON(2));
  InitLogging("logging_test", 2);
  EXPECT_TRUE(VLOG_IS_ON(2));
}

TEST(InitLoggingTest, LogsToStderr) {
  InitLogging("logging_test", 0);
  testing::internal::CaptureStderr();
  LOG(INFO) << "job=" << 7 << " started";
  google::FlushLogFiles(google::INFO);
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find("job=7 started"), std::string::npos) << text;
}

TEST(LogValueTest, QuotesWhatIsNotOneWord) {
  EXPECT_EQ(LogValue("job-7"), "job-7");
  EXPECT_EQ(LogValue(""), "\"\"");
  EXPECT_EQ(LogValue("two words"), "\"two words\"");
  EXPECT_EQ(LogValue("a=b"), "\"a=b\"");
  EXPECT_EQ(LogValue("line\nline \"x\""), "\"line\\nline \\\"x\\\"\"");
}

}  // namespace
}  // namespace weft

#include "base/file/read_file.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/status/status.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

class ReadFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/read.XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }

  std::string Write(const std::string& content) const {
    std::ofstream(folder_ + "/x", std::ios::binary) << content;
    return folder_ + "/x";
  }

  std::string folder_;
};

TEST_F(ReadFileTest, ReturnsAllBytesUpToTheBound) {
  const std::string content = "a" + std::string(200000, '\0') + "z";
  const std::string path = Write(content);
  EXPECT_THAT(ReadFile(path, 200002), IsOkAndHolds(content));
  EXPECT_THAT(ReadFile(path, 200001),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("/x: has more than 200001 bytes")));
  EXPECT_THAT(ReadFile(Write(""), 0), IsOkAndHolds(""));
}

TEST_F(ReadFileTest, WhatIsNoRegularFileIsRefusedWithoutWaiting) {
  const std::string pipe = folder_ + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& path : {pipe, folder_, std::string("/dev/zero")}) {
    EXPECT_THAT(ReadFile(path, 10),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr(path + ": not a regular file")));
  }
}

TEST_F(ReadFileTest, AMissingFileIsNotFoundByItsName) {
  EXPECT_THAT(ReadFile(folder_ + "/none", 10),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/none")));
}

}  // namespace
}  // namespace weft

#include "base/file/random_access_file.h"

#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

class RandomAccessFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/random.XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    std::ofstream(folder_ + "/x") << "0123456789";
  }

  std::string folder_;
};

TEST_F(RandomAccessFileTest, ReadsAtAnyPlace) {
  ASSERT_OK_AND_ASSIGN(RandomAccessFile opened,
                       RandomAccessFile::Open(folder_ + "/x"));
  const RandomAccessFile file = std::move(opened);
  EXPECT_EQ(file.size(), 10);
  std::string out(3, ' ');
  ASSERT_OK(file.Read(7, 3, out.data()));
  EXPECT_EQ(out, "789");
  ASSERT_OK(file.Read(0, 2, out.data()));
  EXPECT_EQ(out, "019");
}

TEST_F(RandomAccessFileTest, AFileThatIsCutWhileItIsOpenIsDataLoss) {
  ASSERT_OK_AND_ASSIGN(const RandomAccessFile file,
                       RandomAccessFile::Open(folder_ + "/x"));
  std::filesystem::resize_file(folder_ + "/x", 5);
  std::string out(4, ' ');
  ASSERT_OK(file.Read(1, 4, out.data()));
  EXPECT_THAT(file.Read(2, 4, out.data()),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("/x: ends at byte 5, before byte 6; it had 10 "
                                 "bytes when it was opened")));
}

TEST_F(RandomAccessFileTest, WhatIsNoRegularFileIsRefusedWithoutWaiting) {
  const std::string pipe = folder_ + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& path : {pipe, folder_}) {
    EXPECT_THAT(RandomAccessFile::Open(path),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr(path + ": not a regular file")));
  }
  EXPECT_THAT(RandomAccessFile::Open(folder_ + "/none"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/none")));
}

}  // namespace
}  // namespace weft

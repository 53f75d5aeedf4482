#include "base/file/mapped_file.h"

#include <sys/stat.h>
#include <unistd.h>

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

std::string WriteTemp(const std::string& name, const std::string& content) {
  const std::string path = ::testing::TempDir() + "/" + name;
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

TEST(MappedFileTest, HoldsTheBytesOfTheFile) {
  const std::string content("a\0b\n", 4);
  ASSERT_OK_AND_ASSIGN(const MappedFile file,
                       MappedFile::Open(WriteTemp("four", content)));
  EXPECT_EQ(file.bytes(), content);
}

TEST(MappedFileTest, AnEmptyFileHasNoBytes) {
  ASSERT_OK_AND_ASSIGN(const MappedFile file,
                       MappedFile::Open(WriteTemp("empty", "")));
  EXPECT_TRUE(file.bytes().empty());
}

TEST(MappedFileTest, BytesStayWhereTheyAreWhenTheObjectMoves) {
  ASSERT_OK_AND_ASSIGN(MappedFile one, MappedFile::Open(WriteTemp("one", "1")));
  ASSERT_OK_AND_ASSIGN(MappedFile two,
                       MappedFile::Open(WriteTemp("two", "22")));
  const char* const data = two.bytes().data();
  one = std::move(two);
  EXPECT_EQ(one.bytes().data(), data);
  const MappedFile three = std::move(one);
  EXPECT_EQ(three.bytes(), "22");
}

TEST(MappedFileTest, AMissingFileIsNotFoundByItsName) {
  EXPECT_THAT(MappedFile::Open(::testing::TempDir() + "/missing"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/missing")));
}

TEST(MappedFileTest, APipeIsRefusedWithoutWaitingForItsWriter) {
  const std::string path = ::testing::TempDir() + "/pipe";
  unlink(path.c_str());
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_THAT(MappedFile::Open(path),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("not a regular file")));
}

TEST(MappedFileTest, AFolderIsRefused) {
  EXPECT_THAT(MappedFile::Open(::testing::TempDir()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("not a regular file")));
}

}  // namespace
}  // namespace weft

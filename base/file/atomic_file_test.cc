#include "base/file/atomic_file.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/file/mapped_file.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class AtomicFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/atomic.XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }

  std::vector<std::string> FilesInFolder() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      names.push_back(entry.path().filename());
    }
    return names;
  }

  std::string Content(const std::string& path) const {
    const auto file = MappedFile::Open(path);
    return file.ok() ? std::string(file->bytes()) : file.status().ToString();
  }

  std::string folder_;
};

TEST_F(AtomicFileTest, NothingIsSeenBeforeTheCommitAndAllAfter) {
  const std::string path = folder_ + "/x";
  std::ofstream(path) << "old";
  ASSERT_OK_AND_ASSIGN(auto file, AtomicFile::Create(path));
  ASSERT_OK(file->Append("new "));
  EXPECT_EQ(Content(path), "old");
  ASSERT_OK(file->Append("content"));
  ASSERT_OK(file->Commit());
  EXPECT_EQ(Content(path), "new content");
  EXPECT_THAT(FilesInFolder(), ElementsAre("x"));
}

TEST_F(AtomicFileTest, LargeAndSmallPiecesKeepTheirOrder) {
  const std::string path = folder_ + "/x";
  const std::string large(3 << 20, 'l');
  const std::string medium(700 << 10, 'm');
  ASSERT_OK_AND_ASSIGN(auto file, AtomicFile::Create(path));
  for (const std::string& piece :
       {std::string("a"), large, std::string("b"), medium, medium}) {
    ASSERT_OK(file->Append(piece));
  }
  ASSERT_OK(file->Commit());
  EXPECT_TRUE(Content(path) == "a" + large + "b" + medium + medium);
}

TEST_F(AtomicFileTest, AFileThatIsNotCommittedLeavesNothing) {
  {
    ASSERT_OK_AND_ASSIGN(auto file, AtomicFile::Create(folder_ + "/x"));
    ASSERT_OK(file->Append("half"));
  }
  EXPECT_THAT(FilesInFolder(), ElementsAre());
}

// A disk that is full for a moment: what was lost then is not committed.
TEST_F(AtomicFileTest, AFailedAppendIsNeverCommitted) {
  const std::string path = folder_ + "/x";
  std::ofstream(path) << "old";
  ASSERT_OK_AND_ASSIGN(auto file, AtomicFile::Create(path));
  struct rlimit old_limit;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old_limit), 0);
  struct rlimit limit = old_limit;
  limit.rlim_cur = 1 << 20;
  const auto old_handler = signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  const absl::Status append = file->Append(std::string(3 << 20, 'x'));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old_limit), 0);
  signal(SIGXFSZ, old_handler);
  EXPECT_THAT(append, Not(IsOk()));
  EXPECT_EQ(file->Append("more"), append);
  EXPECT_EQ(file->Commit(), append);
  EXPECT_EQ(Content(path), "old");
}

TEST_F(AtomicFileTest, TwoWritersOfOnePathDoNotMix) {
  const std::string path = folder_ + "/x";
  ASSERT_OK_AND_ASSIGN(auto first, AtomicFile::Create(path));
  ASSERT_OK_AND_ASSIGN(auto second, AtomicFile::Create(path));
  ASSERT_OK(first->Append("first"));
  ASSERT_OK(second->Append("second"));
  ASSERT_OK(first->Commit());
  ASSERT_OK(second->Commit());
  EXPECT_EQ(Content(path), "second");
}

TEST_F(AtomicFileTest, RightsFollowTheUmask) {
  const mode_t mask = umask(022);
  ASSERT_OK_AND_ASSIGN(auto file, AtomicFile::Create(folder_ + "/x"));
  umask(mask);
  ASSERT_OK(file->Commit());
  struct stat info;
  ASSERT_EQ(stat((folder_ + "/x").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0644);
}

TEST_F(AtomicFileTest, ALinkStaysAndItsTargetIsWritten) {
  std::filesystem::create_directory(folder_ + "/there");
  std::filesystem::create_symlink("there/x", folder_ + "/relative");
  std::filesystem::create_symlink(folder_ + "/relative", folder_ + "/link");
  for (const char* content : {"new", "newer"}) {  // one that is not there first
    ASSERT_OK_AND_ASSIGN(auto file, AtomicFile::Create(folder_ + "/link"));
    ASSERT_OK(file->Append(content));
    ASSERT_OK(file->Commit());
    EXPECT_TRUE(std::filesystem::is_symlink(folder_ + "/link"));
    EXPECT_TRUE(std::filesystem::is_symlink(folder_ + "/relative"));
    EXPECT_FALSE(std::filesystem::is_symlink(folder_ + "/there/x"));
    EXPECT_EQ(Content(folder_ + "/there/x"), content);
  }
  std::filesystem::create_symlink("loop", folder_ + "/loop");
  EXPECT_THAT(AtomicFile::Create(folder_ + "/loop").status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("/loop: its links lead in a circle")));
}

TEST_F(AtomicFileTest, WhatIsNoRegularFileIsNotReplaced) {
  const std::string pipe = folder_ + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  std::filesystem::create_symlink("pipe", folder_ + "/link");
  for (const std::string& path :
       {pipe, folder_ + "/link", folder_, std::string("/dev/null")}) {
    EXPECT_THAT(AtomicFile::Create(path).status(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr(path + ": what is there is not a regular")));
  }
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
}

TEST_F(AtomicFileTest, AMissingFolderIsNamed) {
  EXPECT_THAT(AtomicFile::Create(folder_ + "/none/x"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/none/x")));
}

}  // namespace
}  // namespace weft

#include "client/prepare.h"

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::client {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

class PrepareTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/prepare.XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    std::ofstream(folder_ + "/text") << "aabba";
  }

  absl::StatusOr<PreparedText> Prepare(const std::string& prefix) {
    return PrepareBytes(folder_ + "/text", folder_ + prefix);
  }

  std::vector<std::string> Files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      names.push_back(entry.path().filename().string());
    }
    return names;
  }

  std::string folder_;
};

TEST_F(PrepareTest, APrefixMustNameFiles) {
  std::filesystem::create_directory(folder_ + "/d");
  for (const char* prefix : {"/d/", "/d/.", "/d/.."}) {
    EXPECT_THAT(Prepare(prefix), StatusIs(absl::StatusCode::kInvalidArgument,
                                          HasSubstr("names no file")))
        << prefix;
  }
  EXPECT_THAT(PrepareBytes(folder_ + "/text", ""),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Files(), UnorderedElementsAre("text", "d"));
}

TEST_F(PrepareTest, ATextIsNotOverwritten) {
  for (const char* extension : {".bin", ".idx"}) {
    const std::string text = folder_ + "/out" + extension;
    std::ofstream(text) << "the only copy";
    std::filesystem::create_symlink(text, folder_ + "/link");
    for (const std::string& input : {text, folder_ + "/link"}) {
      EXPECT_THAT(PrepareBytes(input, folder_ + "/out"),
                  StatusIs(absl::StatusCode::kInvalidArgument,
                           HasSubstr("would overwrite the text")));
    }
    EXPECT_EQ(std::filesystem::file_size(text), 13);
    std::filesystem::remove(text);
    std::filesystem::remove(folder_ + "/link");
  }
}

TEST_F(PrepareTest, OneFolderIsMadeAtMost) {
  EXPECT_THAT(Prepare("/a/b/text"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/a/b")));
  EXPECT_THAT(Files(), UnorderedElementsAre("text"));
  EXPECT_OK(Prepare("/a/text"));
  EXPECT_OK(Prepare("/a/b/text"));
  EXPECT_THAT(Files(), UnorderedElementsAre("text", "a"));
}

TEST_F(PrepareTest, AnInterruptLeavesNothingBehind) {
  for (int signal : {SIGINT, SIGTERM}) {
    sigset_t blocked;
    sigset_t old;
    sigemptyset(&blocked);
    sigaddset(&blocked, signal);
    pthread_sigmask(SIG_BLOCK, &blocked, &old);  // so that this test survives
    raise(signal);
    EXPECT_THAT(Prepare("/out"), StatusIs(absl::StatusCode::kCancelled));
    const struct timespec now = {};
    EXPECT_EQ(sigtimedwait(&blocked, nullptr, &now), signal);  // still waits
    pthread_sigmask(SIG_SETMASK, &old, nullptr);
    EXPECT_THAT(Files(), UnorderedElementsAre("text"));
  }
}

}  // namespace
}  // namespace weft::client

#include "client/address.h"

#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/status/status.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::client {
namespace {

using ::testing::HasSubstr;

class AddressTest : public ::testing::Test {
 protected:
  void SetUp() override {
    unsetenv(kCoordinatorVariable);
    std::string pattern = ::testing::TempDir() + "/address.XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { unsetenv(kCoordinatorVariable); }

  std::string folder_;
};

TEST_F(AddressTest, FlagThenVariableThenFile) {
  std::filesystem::create_directories(folder_ + "/.weft");
  std::filesystem::create_directories(folder_ + "/deep/er");
  std::ofstream(folder_ + "/.weft/coordinator") << "file:1 \n";
  EXPECT_THAT(FindCoordinator("", folder_), IsOkAndHolds("file:1"));
  EXPECT_THAT(FindCoordinator("", folder_ + "/deep/er"),
              IsOkAndHolds("file:1"));
  setenv(kCoordinatorVariable, "variable:1", 1);
  EXPECT_THAT(FindCoordinator("", folder_), IsOkAndHolds("variable:1"));
  EXPECT_THAT(FindCoordinator("flag:1", folder_), IsOkAndHolds("flag:1"));
  setenv(kCoordinatorVariable, "", 1);
  EXPECT_THAT(FindCoordinator("", folder_), IsOkAndHolds("file:1"));
}

TEST_F(AddressTest, WithoutAnyTheErrorSaysHowToNameOne) {
  EXPECT_THAT(FindCoordinator("", folder_),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("give --coordinator=HOST:PORT")));
}

TEST_F(AddressTest, APipeInPlaceOfTheFileIsRefusedWithoutWaiting) {
  std::filesystem::create_directories(folder_ + "/.weft");
  ASSERT_EQ(mkfifo((folder_ + "/.weft/coordinator").c_str(), 0600), 0);
  EXPECT_THAT(FindCoordinator("", folder_),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr(".weft/coordinator: not a regular file")));
}

}  // namespace
}  // namespace weft::client

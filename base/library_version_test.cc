#include "base/library_version.h"

#include <vector>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(LibraryVersionTest, NumbersAreReadByTheirUnits) {
  EXPECT_EQ(ToString(VersionOf(22803, 10000, 100)), "2.28.3");
  EXPECT_EQ(ToString(VersionOf(13000, 1000, 10)), "13.0.0");
  EXPECT_EQ(ToString(VersionOf(130101, 10000, 100)), "13.1.1");
}

TEST(LibraryVersionTest, VersionsAsNewAsTheLeastWillDo) {
  EXPECT_OK(CheckLibraries({{"NCCL", {2, 28, 3}, {2, 28, 3}},
                            {"cuDNN", {10, 0, 0}, {9, 30, 0}},
                            {"UCX", {1, 14, 0}, {1, 13, 1}}}));
}

TEST(LibraryVersionTest, EveryOlderOneIsNamedWithBothVersions) {
  EXPECT_THAT(CheckLibraries({{"NCCL", {2, 18, 9}, {2, 19, 0}},
                              {"cuDNN", {9, 1, 0}, {9, 0, 5}},
                              {"UCX", {1, 13, 0}, {1, 13, 1}}}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("NCCL 2.18.9 is older than 2.19.0"),
                             HasSubstr("UCX 1.13.0 is older than 1.13.1"),
                             Not(HasSubstr("cuDNN")))));
}

TEST(LibraryVersionTest, ALogLineHasNameAndVersionOfEach) {
  EXPECT_EQ(
      DescribeLibraries({{"UCX", {1, 13, 1}, {}}, {"oneDNN", {2, 6}, {}}}),
      "UCX=1.13.1 oneDNN=2.6.0");
}

}  // namespace
}  // namespace weft

#include "kernels/comm/shared_region.h"

#include <sys/wait.h>
#include <unistd.h>

#include "absl/status/status.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::comm {
namespace {

using ::testing::HasSubstr;

TEST(SharedRegionTest, IsZeroAndSeenByThoseWhoOpenItInAnyProcess) {
  ASSERT_OK_AND_ASSIGN(auto region, SharedRegion::Create(100000));
  EXPECT_EQ(region->data()[99999], std::byte{0});
  const std::string place = region->place();
  const pid_t child = ::fork();
  if (child == 0) {
    auto opened = SharedRegion::Open(place, 100000);
    if (!opened.ok()) ::_exit(1);
    (*opened)->data()[99999] = std::byte{7};
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(region->data()[99999], std::byte{7});
  ASSERT_OK_AND_ASSIGN(auto again, SharedRegion::Open(place, 100000));
  again->data()[5] = std::byte{9};
  EXPECT_EQ(region->data()[5], std::byte{9});
}

TEST(SharedRegionTest, OtherSizesAndPlacesThatAreGoneAreNamed) {
  ASSERT_OK_AND_ASSIGN(auto region, SharedRegion::Create(100000));
  const std::string place = region->place();
  EXPECT_THAT(
      SharedRegion::Open(place, 200000),
      StatusIs(absl::StatusCode::kUnavailable, HasSubstr("100000 bytes")));
  region.reset();
  EXPECT_THAT(SharedRegion::Open(place, 100000),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr(place)));
}

// As where processes are numbered apart, and another one has the number and the
// descriptor of the one that is meant.
TEST(SharedRegionTest, AnotherRegionInItsPlaceIsNotTakenForIt) {
  ASSERT_OK_AND_ASSIGN(auto region, SharedRegion::Create(100000));
  const std::string place = region->place();
  region.reset();
  ASSERT_OK_AND_ASSIGN(auto other, SharedRegion::Create(100000));
  ASSERT_EQ(other->place().substr(0, other->place().find('#')),
            place.substr(0, place.find('#')));
  EXPECT_THAT(SharedRegion::Open(place, 100000),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("what is there has 100000 bytes and inode")));
  EXPECT_OK(SharedRegion::Open(other->place(), 100000).status());
}

}  // namespace
}  // namespace weft::comm

#include "kernels/comm/host_address.h"

#include <string>

#include "absl/status/status.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::comm {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

HostAddress ExampleAddress() {
  HostAddress address;
  address.transport = "nvlink";
  address.stream = "ep";
  address.rank = 2;
  address.world = 4;
  address.host = "3c1e";
  address.place = "/proc/17/fd/9";
  return address;
}

TEST(AddressTest, PlaceComesThrough) {
  HostAddress expected = ExampleAddress();
  expected.place = "";
  EXPECT_THAT(ParsePlace(FormatAddress(ExampleAddress()), expected),
              IsOkAndHolds(std::string("/proc/17/fd/9")));
}

TEST(AddressTest, AnotherRankStreamWorldOrHostIsRefusedNamingBoth) {
  const std::string text = FormatAddress(ExampleAddress());
  HostAddress others[4] = {ExampleAddress(), ExampleAddress(), ExampleAddress(),
                           ExampleAddress()};
  others[0].rank = 3;
  others[1].stream = "gather";
  others[2].world = 5;
  others[3].host = "77aa";
  for (const HostAddress& other : others) {
    EXPECT_THAT(ParsePlace(text, other),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("stream=ep rank=2 world=4 host=3c1e"),
                               HasSubstr("host=" + other.host))));
  }
}

TEST(HostIdentityTest, IsTheSameEachTime) {
  ASSERT_OK_AND_ASSIGN(const std::string host, HostIdentity());
  EXPECT_GT(host.size(), 10);
  EXPECT_THAT(HostIdentity(), IsOkAndHolds(host));
}

}  // namespace
}  // namespace weft::comm

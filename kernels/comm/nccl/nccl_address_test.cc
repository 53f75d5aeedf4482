#include "kernels/comm/nccl/nccl_address.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::comm::nccl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Address ExampleAddress() {
  Address address;
  address.stream = "ep";
  address.rank = 2;
  address.world = 4;
  address.version = 22803;
  std::string id(128, '\0');
  for (size_t i = 0; i < id.size(); ++i) id[i] = static_cast<char>(i * 3);
  address.unique_ids = {{0, id}, {7, std::string(128, '\n')}};
  return address;
}

TEST(AddressTest, UniqueIdsOfAnyBytesComeThrough) {
  const Address sent = ExampleAddress();
  Address expected = sent;
  expected.unique_ids.clear();
  ASSERT_OK_AND_ASSIGN(const Address got,
                       ParseAddress(FormatAddress(sent), expected));
  EXPECT_EQ(got.unique_ids, sent.unique_ids);
  EXPECT_EQ(got.rank, 2);
}

TEST(AddressTest, AnotherRankStreamWorldOrVersionIsRefusedNamingBoth) {
  const std::string text = FormatAddress(ExampleAddress());
  Address others[4] = {ExampleAddress(), ExampleAddress(), ExampleAddress(),
                       ExampleAddress()};
  others[0].rank = 3;
  others[1].stream = "gather";
  others[2].world = 5;
  others[3].version = 22809;
  for (const Address& other : others) {
    EXPECT_THAT(ParseAddress(text, other),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("stream=ep rank=2 world=4"),
                               HasSubstr(absl::StrCat("rank=", other.rank)))));
  }
}

TEST(AddressTest, BrokenUniqueIdsAreRefused) {
  Address bare = ExampleAddress();
  bare.unique_ids.clear();
  const std::string header = FormatAddress(bare);
  for (const std::string& line :
       {std::string("0"), std::string("0 abcd"), std::string("x ab"),
        absl::StrCat("0 ", std::string(256, 'x')),
        absl::StrCat("0 ", std::string(255, 'a')), std::string()}) {
    EXPECT_THAT(ParseAddress(absl::StrCat(header, "\n", line), bare),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("rank 2: line 1")))
        << line;
  }
}

}  // namespace
}  // namespace weft::comm::nccl

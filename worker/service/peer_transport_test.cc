#include "worker/service/peer_transport.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/service/fake_transport.h"

namespace weft::service {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Four ranks on two hosts, and what became of the fabric of rank 0.
class PeerTransportTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::vector<std::string> all;
    for (int rank = 0; rank < 4; ++rank) {
      Topology at;
      at.host = rank < 2 ? "boot-a" : "boot-b";
      at.device = "cpu";
      transports_.push_back(std::make_unique<PeerTransport>(
          std::move(at), std::make_unique<FakeTransport>(
                             absl::StrCat("near ", rank), &events_[rank])));
      all.push_back(transports_.back()->address());
    }
    ASSERT_OK(transports_[0]->Connect(all));
  }

  TransportEvents events_[4];
  std::vector<std::unique_ptr<PeerTransport>> transports_;
};

TEST_F(PeerTransportTest, GroupsOfAHostAreMadeWhereOthersAreFarAway) {
  EXPECT_THAT(events_[0].connected_to,
              ElementsAre("near 0", "near 1", "near 2", "near 3"));
  EXPECT_THAT(transports_[0]->CreateCommunicator("ep", 0, {0, 1}),
              StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(events_[0].communicators, ElementsAre("ep"));
}

TEST_F(PeerTransportTest, AGroupOfTwoHostsIsRefusedWithRanksAndReason) {
  EXPECT_THAT(transports_[0]->CreateCommunicator("ep", 0, {0, 1, 2, 3}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("group ep: rank 0 on host boot-a cannot read "
                                 "the memory of rank 2 on host boot-b")));
  EXPECT_THAT(events_[0].communicators, IsEmpty());
}

TEST_F(PeerTransportTest, ARankWithAnotherTransportIsNamed) {
  const std::string other = "weft.ucx.1";
  EXPECT_THAT(transports_[1]->Connect({transports_[0]->address(), other}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("rank 1: "), HasSubstr("weft.ucx.1"))));
}

}  // namespace
}  // namespace weft::service

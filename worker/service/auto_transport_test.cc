#include "worker/service/auto_transport.h"

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

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Rank {
  TransportEvents fabric;
  TransportEvents network;
  std::unique_ptr<AutoTransport> transport;
};

// Two ranks, on the hosts named.
class AutoTransportTest : public ::testing::Test {
 protected:
  void Open(int rank, const std::string& host, bool has_fabric = true) {
    Topology at = {
        host, absl::StrCat("gpu-", rank), {absl::StrCat("gpu-", 1 - rank)}};
    Rank& r = ranks_[rank];
    std::unique_ptr<Transport> fabric;
    if (has_fabric) {
      fabric = std::make_unique<FakeTransport>(absl::StrCat("near ", rank),
                                               &r.fabric);
    }
    r.transport = std::make_unique<AutoTransport>(
        std::move(at), std::move(fabric),
        std::make_unique<FakeTransport>(absl::StrCat("far ", rank),
                                        &r.network));
  }

  void Connect() {
    const std::vector<std::string> all = {ranks_[0].transport->address(),
                                          ranks_[1].transport->address()};
    for (Rank& rank : ranks_) EXPECT_OK(rank.transport->Connect(all));
  }

  Rank ranks_[2];
};

TEST_F(AutoTransportTest, PeersGoOnWithTheFabricAlone) {
  Open(0, "a");
  Open(1, "a");
  Connect();
  for (Rank& rank : ranks_) {
    EXPECT_THAT(rank.fabric.connected_to, ElementsAre("near 0", "near 1"));
    EXPECT_THAT(rank.network.connected_to, IsEmpty());
    EXPECT_TRUE(rank.network.is_gone);
    EXPECT_FALSE(rank.fabric.is_gone);
    const int members[] = {0, 1};
    EXPECT_THAT(rank.transport->CreateCommunicator("ep", 0, members).status(),
                StatusIs(absl::StatusCode::kUnavailable));
    EXPECT_THAT(rank.fabric.communicators, ElementsAre("ep"));
  }
}

TEST_F(AutoTransportTest, RanksOfTwoHostsGoOnWithTheNetwork) {
  Open(0, "a");
  Open(1, "b");
  Connect();
  for (Rank& rank : ranks_) {
    EXPECT_THAT(rank.network.connected_to, ElementsAre("far 0", "far 1"));
    EXPECT_TRUE(rank.fabric.is_gone);
  }
}

TEST_F(AutoTransportTest, OneRankWithoutAFabricIsEnoughForTheNetwork) {
  Open(0, "a");
  Open(1, "a", /*has_fabric=*/false);
  Connect();
  for (Rank& rank : ranks_) {
    EXPECT_THAT(rank.network.connected_to, ElementsAre("far 0", "far 1"));
  }
}

TEST_F(AutoTransportTest, ARankThatWasToldItsTransportIsNamed) {
  Open(0, "a");
  const std::vector<std::string> all = {ranks_[0].transport->address(),
                                        "weft.nccl.1 stream=ep"};
  EXPECT_THAT(
      ranks_[0].transport->Connect(all),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("rank 1: an address begins with \"weft.nccl")));
}

}  // namespace
}  // namespace weft::service

#include "worker/service/transport_choice.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::service {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// GPUs of one host, each of which reads all others.
std::vector<TransportOffer> OneHost(int gpus) {
  std::vector<TransportOffer> ranks(gpus);
  for (int a = 0; a < gpus; ++a) {
    ranks[a].topology.host = "boot-1";
    ranks[a].topology.device = absl::StrCat("gpu-", a);
    ranks[a].fabric = absl::StrCat("place ", a);
    for (int b = 0; b < gpus; ++b) {
      if (a != b) ranks[a].topology.peers.push_back(absl::StrCat("gpu-", b));
    }
  }
  return ranks;
}

TEST(TransportChoiceTest, GpusThatAllReadEachOtherUseTheFabric) {
  for (int gpus : {2, 8}) EXPECT_TRUE(ReachesAllPeers(OneHost(gpus)));
}

TEST(TransportChoiceTest, OneRankHasNobodyToReach) {
  EXPECT_FALSE(ReachesAllPeers(OneHost(1)));
}

TEST(TransportChoiceTest, OneOnAnotherHostMeansTheNetwork) {
  auto ranks = OneHost(4);
  ranks[2].topology.host = "boot-2";
  EXPECT_FALSE(ReachesAllPeers(ranks));
}

TEST(TransportChoiceTest, OneWayIsNotEnough) {
  auto ranks = OneHost(3);
  ranks[1].topology.peers = {"gpu-0"};
  EXPECT_FALSE(ReachesAllPeers(ranks));
}

TEST(TransportChoiceTest, ARankWithoutTheFabricMeansTheNetwork) {
  auto ranks = OneHost(2);
  ranks[1].fabric.clear();
  EXPECT_FALSE(ReachesAllPeers(ranks));
}

// Two ranks on one GPU have nobody between whom NVLink would lie.
TEST(TransportChoiceTest, RanksThatShareAGpuUseTheNetwork) {
  auto ranks = OneHost(2);
  ranks[1].topology = ranks[0].topology;
  EXPECT_FALSE(ReachesAllPeers(ranks));
}

TEST(CheckReachTest, OnlyTheGroupNeedsToReadEachOther) {
  auto ranks = OneHost(4);
  ranks[2].topology.host = "boot-2";
  EXPECT_OK(CheckReach(ranks, {0, 1, 3}));
  EXPECT_THAT(CheckReach(ranks, {1, 2}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("rank 1 on host boot-1"),
                             HasSubstr("rank 2 on host boot-2"))));
  ranks = OneHost(3);
  ranks[2].topology.peers = {"gpu-0"};
  EXPECT_OK(CheckReach(ranks, {0, 2}));
  EXPECT_THAT(CheckReach(ranks, {0, 1, 2}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("rank 2 on gpu-2 cannot read the memory of "
                                 "rank 1 on gpu-1 of the same host")));
}

TEST(CheckReachTest, RanksThatShareADeviceReadItsMemory) {
  auto ranks = OneHost(2);
  ranks[1].topology = ranks[0].topology;
  EXPECT_OK(CheckReach(ranks, {0, 1}));
}

TEST(TransportChoiceTest, AnOfferIsReadBackAsItWas) {
  TransportOffer offer = OneHost(3)[1];
  offer.fabric = std::string("a\n\0b", 4);
  offer.network = "x y\nz";
  ASSERT_OK_AND_ASSIGN(const TransportOffer read,
                       DecodeOffer(EncodeOffer(offer)));
  EXPECT_EQ(read.topology.host, "boot-1");
  EXPECT_EQ(read.topology.device, "gpu-1");
  EXPECT_THAT(read.topology.peers, ElementsAre("gpu-0", "gpu-2"));
  EXPECT_EQ(read.fabric, offer.fabric);
  EXPECT_EQ(read.network, offer.network);
  offer.topology.peers.clear();
  ASSERT_OK_AND_ASSIGN(const TransportOffer alone,
                       DecodeOffer(EncodeOffer(offer)));
  EXPECT_THAT(alone.topology.peers, ElementsAre());
}

TEST(TransportChoiceTest, AnotherKindOfAddressIsRefused) {
  for (const std::string text :
       {"", "weft.nccl.1 stream=ep\n", "weft.transports.1 h d p 9\nab",
        "weft.transports.1 h d p x\nab"}) {
    EXPECT_THAT(DecodeOffer(text).status(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("an address begins with"),
                               HasSubstr("the same --transport"))))
        << text;
  }
}

}  // namespace
}  // namespace weft::service

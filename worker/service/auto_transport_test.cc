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

namespace weft::service {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Notes what happens to a transport.
struct Events {
  std::vector<std::string> connected_to;
  std::vector<std::string> communicators;
  bool is_gone = false;
};

class FakeTransport : public Transport {
 public:
  FakeTransport(std::string address, Events* events)
      : address_(std::move(address)), events_(*events) {}
  ~FakeTransport() override { events_.is_gone = true; }

  const std::string& address() const override { return address_; }
  absl::Status Connect(absl::Span<const std::string> addresses) override {
    events_.connected_to.assign(addresses.begin(), addresses.end());
    return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<comm::Communicator>> CreateCommunicator(
      absl::string_view name, int id, absl::Span<const int> ranks) override {
    events_.communicators.push_back(std::string(name));
    return absl::UnavailableError("a fake has none");
  }

 private:
  const std::string address_;
  Events& events_;
};

struct Rank {
  Events fabric;
  Events network;
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

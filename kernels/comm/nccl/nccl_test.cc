#include "kernels/comm/nccl/nccl.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/comm/conformance.h"
#include "kernels/comm/cuda/testing/cuda_world.h"
#include "kernels/comm/cuda/testing/test_device.h"

namespace weft::comm {
namespace {

using ::testing::HasSubstr;

const CollectiveTag kTag = {"combine.dgrad", 4, 2, 1};

// The groups that the suite makes, by id: all ranks, the even and the odd ones.
std::vector<std::vector<int>> GroupsOf(int ranks) {
  std::vector<std::vector<int>> groups(3);
  for (int rank = 0; rank < ranks; ++rank) {
    groups[0].push_back(rank);
    groups[1 + rank % 2].push_back(rank);
  }
  return groups;
}

// All ranks' transports in one process, a GPU each.
class NcclTestWorld : public cuda::CudaTestWorld {
 public:
  static absl::StatusOr<std::unique_ptr<NcclTestWorld>> Create(
      const TestWorldOptions& options) {
    auto world = std::make_unique<NcclTestWorld>();
    RETURN_IF_ERROR(world->MakeDevices(options.ranks));
    for (int stream = 0; stream < kTestStreams; ++stream) {
      RETURN_IF_ERROR(world->AddStream(stream, options));
    }
    return world;
  }

  absl::StatusOr<std::unique_ptr<Communicator>> CreateCommunicator(
      absl::string_view name, absl::Span<const int> ranks, int rank,
      int stream) override {
    const auto groups = GroupsOf(static_cast<int>(devices_.size()));
    // In a world of one, all ranks are the even ones, too.
    const auto found = std::find_if(
        groups.begin() + (name == "world" ? 0 : 1), groups.end(),
        [&](const std::vector<int>& group) { return ranks == group; });
    return Stage(transports_[stream][rank]->CreateCommunicator(
                     name, static_cast<int>(found - groups.begin()), ranks),
                 rank);
  }

  NcclTransport& transport(int stream, int rank) {
    return *transports_[stream][rank];
  }
  void DestroyTransports() { transports_.clear(); }

 private:
  absl::Status AddStream(int stream, const TestWorldOptions& test) {
    auto& transports = transports_.emplace_back();
    std::vector<std::string> addresses;
    const auto groups = GroupsOf(test.ranks);
    for (int rank = 0; rank < test.ranks; ++rank) {
      NcclTransportOptions options;
      options.name = absl::StrCat("stream", stream);
      options.rank = rank;
      options.world = test.ranks;
      options.deadline = cuda::Capped(test.deadline);
      options.cancellation = test.cancellation;
      options.device = devices_[rank].get();
      options.ordinal = cuda::GpuOfRank(rank);
      for (size_t id = 0; id < groups.size(); ++id) {
        const bool is_root = groups[id].size() > 1 && groups[id][0] == rank;
        if (is_root) options.rooted_groups.push_back(static_cast<int>(id));
      }
      ASSIGN_OR_RETURN(transports.emplace_back(),
                       NcclTransport::Create(options));
      addresses.push_back(transports.back()->address());
    }
    for (auto& transport : transports) {
      RETURN_IF_ERROR(transport->Connect(addresses));
    }
    return absl::OkStatus();
  }

  std::vector<std::vector<std::unique_ptr<NcclTransport>>> transports_;
};

absl::StatusOr<std::unique_ptr<TestWorld>> CreateNccl(
    TestWorldOptions options) {
  return NcclTestWorld::Create(options);
}

// NCCL takes no GPU for two ranks of a process.
std::vector<WorldUnderTest> WorldsThatFit() {
  std::vector<WorldUnderTest> worlds;
  for (WorldUnderTest& world : WorldsUnderTest("nccl", &CreateNccl)) {
    world.names_absent_ranks = false;
    world.compares_sizes = false;
    if (world.ranks <= std::max(1, cuda::NumGpus())) {
      worlds.push_back(std::move(world));
    }
  }
  return worlds;
}

INSTANTIATE_TEST_SUITE_P(Nccl, CommunicatorConformance,
                         testing::ValuesIn(WorldsThatFit()),
                         WorldUnderTestName);

// What only NCCL does.
class NcclTest : public CommunicatorConformance {
 protected:
  NcclTestWorld& nccl_world() { return static_cast<NcclTestWorld&>(*world_); }
};

TEST_P(NcclTest, GroupOfOneCopiesInPinnedMemory) {
  CreateWorld();
  std::vector<std::unique_ptr<Communicator>> own(1);
  ASSERT_OK_AND_ASSIGN(own[0], nccl_world().transport(0, 0).CreateCommunicator(
                                   "own", /*id=*/5, {0}));
  ASSERT_OK_AND_ASSIGN(auto sent, world_->device(0)->AllocateHost(400));
  ASSERT_OK_AND_ASSIGN(auto got, world_->device(0)->AllocateHost(400));
  std::memset(sent->data(), 'a', 400);
  const auto statuses =
      RunOn(own, [&](int, Communicator& comm, device::Stream& stream) {
        absl::Status status =
            comm.AllGather(sent->data(), got->data(), 400, stream, kTag);
        status.Update(stream.Synchronize());
        return status;
      });
  EXPECT_OK(statuses[0]);
  EXPECT_EQ(std::memcmp(sent->data(), got->data(), 400), 0);
}

TEST_P(NcclTest, CommunicatorOutlivesItsTransport) {
  CreateWorld();
  nccl_world().DestroyTransports();
  for (const absl::Status& status :
       RunOn(communicators_, [](int, Communicator&comm, device::Stream&stream) {
         return comm.Barrier(stream, kTag);
       })) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition));
  }
}

TEST_P(NcclTest, ErrorOfOneGroupStopsTheWholeTransport) {
  CreateWorld();
  auto others = CreateGroup("even", GroupsOf(ranks())[1], 0);
  const auto statuses = RunOn(communicators_, [&](int rank, Communicator& comm,
                                                  device::Stream& stream) {
    if (rank > 0) return absl::OkStatus();
    EXPECT_THAT(comm.Broadcast(nullptr, -1, 0, stream, kTag),
                StatusIs(absl::StatusCode::kInvalidArgument));
    return others[0]->Barrier(stream, kTag);
  });
  EXPECT_THAT(statuses[0], StatusIs(absl::StatusCode::kInvalidArgument,
                                    HasSubstr("has failed before")));
  EXPECT_FALSE(nccl_world().transport(0, 0).status().ok());
  EXPECT_OK(nccl_world().transport(1, 0).status()) << "another stream's";
}

TEST_P(NcclTest, GroupsThatAreNotRootedAndIdsUsedTwiceAreRefused) {
  CreateWorld();
  NcclTransport& transport = nccl_world().transport(1, 0);
  EXPECT_OK(transport.CreateCommunicator("own", 5, {0}));
  EXPECT_THAT(
      transport.CreateCommunicator("own", 5, {0}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("used already")));
  EXPECT_THAT(transport.CreateCommunicator("far", 6, {0, ranks()}),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(transport.Connect({}),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

INSTANTIATE_TEST_SUITE_P(Nccl, NcclTest, testing::ValuesIn(WorldsThatFit()),
                         WorldUnderTestName);

}  // namespace
}  // namespace weft::comm

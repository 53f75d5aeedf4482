#include "kernels/comm/nvlink/nvlink.h"

#include <cuda_runtime_api.h>

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/comm/conformance.h"
#include "kernels/comm/cuda/testing/cuda_world.h"
#include "kernels/comm/cuda/testing/test_device.h"

namespace weft::comm {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const CollectiveTag kTag = {"combine.dgrad", 4, 2, 1};

// All ranks' transports in one process, a GPU each: what a stream waits for
// must not stand behind it in one of the queues that a GPU shares out among a
// process's streams. Ranks of nvlink_processes_test may share a GPU.
class NvlinkTestWorld : public cuda::CudaTestWorld {
 public:
  static absl::StatusOr<std::unique_ptr<NvlinkTestWorld>> Create(
      const TestWorldOptions& options) {
    auto world = std::make_unique<NvlinkTestWorld>();
    RETURN_IF_ERROR(world->MakeDevices(options.ranks));
    for (int stream = 0; stream < kTestStreams; ++stream) {
      RETURN_IF_ERROR(world->AddStream(stream, options));
    }
    return world;
  }

  absl::StatusOr<std::unique_ptr<Communicator>> CreateCommunicator(
      absl::string_view name, absl::Span<const int> ranks, int rank,
      int stream) override {
    return Stage(CreateUnstaged(name, ranks, rank, stream), rank);
  }

  absl::StatusOr<std::unique_ptr<Communicator>> CreateUnstaged(
      absl::string_view name, absl::Span<const int> ranks, int rank,
      int stream) {
    return transports_[stream][rank]->CreateCommunicator(
        name, IdOf(name, ranks), ranks);
  }

  NvlinkTransport& transport(int stream, int rank) {
    return *transports_[stream][rank];
  }
  void DestroyTransports() { transports_.clear(); }

 private:
  absl::Status AddStream(int stream, const TestWorldOptions& test) {
    auto& transports = transports_.emplace_back();
    std::vector<std::string> addresses;
    for (int rank = 0; rank < test.ranks; ++rank) {
      NvlinkTransportOptions options;
      options.name = absl::StrCat("stream", stream);
      options.rank = rank;
      options.world = test.ranks;
      options.deadline = cuda::Capped(test.deadline);
      options.cancellation = test.cancellation;
      options.device = devices_[rank].get();
      options.ordinal = cuda::GpuOfRank(rank);
      ASSIGN_OR_RETURN(transports.emplace_back(),
                       NvlinkTransport::Create(options));
      addresses.push_back(transports.back()->address());
    }
    for (auto& transport : transports) {
      RETURN_IF_ERROR(transport->Connect(addresses));
    }
    return absl::OkStatus();
  }

  // All members number their groups alike.
  int IdOf(absl::string_view name, absl::Span<const int> ranks) {
    MutexLock lock(&mu_);
    const auto id = ids_.emplace(
        std::make_pair(std::string(name),
                       std::vector<int>(ranks.begin(), ranks.end())),
        static_cast<int>(ids_.size()));
    return id.first->second;
  }

  std::vector<std::vector<std::unique_ptr<NvlinkTransport>>> transports_;
  Mutex mu_;
  std::map<std::pair<std::string, std::vector<int>>, int> ids_
      ABSL_GUARDED_BY(mu_);
};

absl::StatusOr<std::unique_ptr<TestWorld>> CreateNvlink(
    TestWorldOptions options) {
  return NvlinkTestWorld::Create(options);
}

// Of those, the worlds that this host has the GPUs for; all of them where it
// has none, to say so.
std::vector<WorldUnderTest> OnGpusOfTheirOwn(
    std::vector<WorldUnderTest> worlds) {
  const int gpus = cuda::NumGpus();
  std::vector<WorldUnderTest> fitting;
  for (WorldUnderTest& world : worlds) {
    world.compares_sizes = false;
    if (gpus == 0 || world.ranks <= gpus) fitting.push_back(world);
  }
  return fitting;
}

INSTANTIATE_TEST_SUITE_P(Nvlink, CommunicatorConformance,
                         testing::ValuesIn(OnGpusOfTheirOwn(
                             WorldsUnderTest("nvlink", &CreateNvlink))),
                         WorldUnderTestName);

// What only this backend does.
class NvlinkTest : public CommunicatorConformance {
 protected:
  NvlinkTestWorld& nvlink_world() {
    return static_cast<NvlinkTestWorld&>(*world_);
  }

  // Communicators that take device memory, of a buffer that is registered and
  // of one that is not.
  void CreateUnstaged(absl::Duration deadline) {
    CreateWorld(deadline);
    std::vector<std::thread> threads;
    unstaged_.resize(ranks());
    registered_.resize(ranks());
    other_.resize(ranks());
    for (int rank = 0; rank < ranks(); ++rank) {
      ASSERT_OK_AND_ASSIGN(registered_[rank],
                           world_->device(rank)->Allocate(kBytes, kCategory));
      ASSERT_OK_AND_ASSIGN(other_[rank],
                           world_->device(rank)->Allocate(kBytes, kCategory));
      ASSERT_OK_AND_ASSIGN(
          unstaged_[rank],
          nvlink_world().CreateUnstaged("unstaged", all_ranks(), rank, 0));
      ASSERT_OK(unstaged_[rank]->Reserve(kBytes));
      threads.emplace_back([this, rank] {
        EXPECT_OK(unstaged_[rank]->RegisterMemory({registered_[rank].get()}));
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  static constexpr int64_t kBytes = 4 << 20;
  static constexpr auto kCategory = device::MemoryCategory::kArena;
  std::vector<std::unique_ptr<device::Buffer>> registered_, other_;
  std::vector<std::unique_ptr<Communicator>> unstaged_;
};

TEST_P(NvlinkTest, SendBuffersMayLieElsewhereOnEachRank) {
  CreateUnstaged(absl::Seconds(30));
  for (int rank = 0; rank < ranks(); ++rank) {
    std::vector<int> values(1000, rank + 1);
    ASSERT_EQ(cudaMemcpy(registered_[rank]->data() + 4096 * rank, values.data(),
                         4000, cudaMemcpyHostToDevice),
              cudaSuccess);
  }
  const auto statuses = RunOn(
      unstaged_, [&](int rank, Communicator& comm, device::Stream& stream) {
        absl::Status status =
            comm.AllGather(registered_[rank]->data() + 4096 * rank,
                           other_[rank]->data(), 4000, stream, kTag);
        status.Update(stream.Synchronize());
        return status;
      });
  for (int rank = 0; rank < ranks(); ++rank) {
    EXPECT_OK(statuses[rank]);
    std::vector<int> got(1000 * ranks());
    ASSERT_EQ(cudaMemcpy(got.data(), other_[rank]->data(), 4000 * ranks(),
                         cudaMemcpyDeviceToHost),
              cudaSuccess);
    for (int i = 0; i < 1000 * ranks(); ++i) ASSERT_EQ(got[i], i / 1000 + 1);
  }
}

TEST_P(NvlinkTest, SlicesOutsideRegisteredMemoryAreNoneToSum) {
  CreateUnstaged(absl::Seconds(30));
  const auto statuses = RunOn(
      unstaged_, [&](int rank, Communicator& comm, device::Stream& stream) {
        std::byte* const send =
            rank == 1 ? other_[rank]->data() : registered_[rank]->data();
        return comm.ReduceScatter(send, registered_[rank]->data() + 100000,
                                  1000, DType::kF32, stream, kTag);
      });
  for (const absl::Status& status : statuses) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                                 AllOf(HasSubstr("rank 1"),
                                       HasSubstr("no registered memory"),
                                       HasSubstr("combine.dgrad"))));
  }
}

TEST_P(NvlinkTest, SegmentsThatDoNotSayWhereTheyLieAreRefused) {
  CreateUnstaged(absl::Seconds(30));
  const auto statuses = RunOn(
      unstaged_, [&](int rank, Communicator& comm, device::Stream& stream) {
        const Segment segment = {1 - rank, 0, 100};
        return comm.AllToAllV(registered_[rank]->data(), {segment},
                              registered_[rank]->data() + 1000, {segment},
                              stream, kTag);
      });
  for (int rank = 0; rank < ranks(); ++rank) {
    EXPECT_THAT(statuses[rank],
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr(absl::StrCat("rank ", 1 - rank)),
                               HasSubstr("does not say where"))));
  }
}

TEST_P(NvlinkTest, SizesThatDifferAreFoundWhenACallIsSeenFirst) {
  CreateUnstaged(absl::Seconds(30));
  const auto statuses = RunOn(
      unstaged_, [&](int rank, Communicator& comm, device::Stream& stream) {
        return comm.AllGather(registered_[rank]->data(), other_[rank]->data(),
                              rank == 1 ? 104 : 100, stream, kTag);
      });
  for (const absl::Status& status : statuses) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                                 AllOf(HasSubstr("ranks disagree"),
                                       HasSubstr("100 bytes"),
                                       HasSubstr("104 bytes"))));
  }
}

// The call has been seen before, so hosts do not wait for each other.
TEST_P(NvlinkTest, RankThatIsMissingOnTheDeviceIsNamed) {
  CreateUnstaged(absl::Milliseconds(500));
  const auto gather = [&](int rank, Communicator& comm,
                          device::Stream& stream) {
    absl::Status status = comm.AllGather(
        registered_[rank]->data(), other_[rank]->data(), 1000, stream, kTag);
    if (status.ok()) status = stream.Synchronize();
    return status;
  };
  for (const absl::Status& status : RunOn(unstaged_, gather)) {
    EXPECT_OK(status);
  }
  const auto statuses = RunOn(
      unstaged_, [&](int rank, Communicator& comm, device::Stream& stream) {
        return rank == 1 ? absl::OkStatus() : gather(rank, comm, stream);
      });
  EXPECT_THAT(statuses[0],
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr("group unstaged, all_gather number 1"),
                             HasSubstr("not heard from rank 1"))));
}

TEST_P(NvlinkTest, CommunicatorOutlivesItsTransport) {
  CreateWorld();
  nvlink_world().DestroyTransports();
  for (const absl::Status& status :
       RunOn(communicators_, [](int, Communicator&comm, device::Stream&stream) {
         return comm.Barrier(stream, kTag);
       })) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition));
  }
}

TEST_P(NvlinkTest, AddressesOfOtherStreamsAndIdsUsedTwiceAreRefused) {
  CreateWorld();
  NvlinkTransport& transport = nvlink_world().transport(1, 0);
  EXPECT_OK(transport.CreateCommunicator("own", 5, {0}));
  for (int id : {5, -1, 8}) {
    EXPECT_THAT(transport.CreateCommunicator("own", id, {0}),
                StatusIs(absl::StatusCode::kInvalidArgument));
  }
  EXPECT_THAT(transport.Connect({}),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  NvlinkTransportOptions options;
  options.name = "stream1";
  options.world = 2;
  options.device = world_->device(0);
  ASSERT_OK_AND_ASSIGN(auto fresh, NvlinkTransport::Create(options));
  ASSERT_OK(fresh->Connect(
      {fresh->address(), nvlink_world().transport(0, 1).address()}));
  EXPECT_OK(fresh->CreateCommunicator("own", 0, {0}));
  EXPECT_THAT(
      fresh->CreateCommunicator("all", 1, {0, 1}),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("group all"), HasSubstr("stream=stream1"))));
}

// On a host with one GPU there is no world of two.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(NvlinkTest);
INSTANTIATE_TEST_SUITE_P(Nvlink, NvlinkTest,
                         testing::ValuesIn(OnGpusOfTheirOwn({WorldUnderTest{
                             "two", 2, &CreateNvlink}})),
                         WorldUnderTestName);

}  // namespace
}  // namespace weft::comm

#include "kernels/comm/ucx/ucx.h"

#include <dirent.h>

#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/comm/conformance.h"
#include "kernels/device/cpu/cpu_device.h"
#include "kernels/device/device.h"

namespace weft::comm {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const CollectiveTag kTag = {"combine.dgrad", 4, 2, 1};

// All ranks' transports in one process.
class UcxTestWorld : public TestWorld {
 public:
  static absl::StatusOr<std::unique_ptr<TestWorld>> Create(
      TestWorldOptions options, int64_t max_message_bytes = 1 << 30) {
    auto world = std::make_unique<UcxTestWorld>();
    auto device = device::CreateCpuDevice({});
    if (!device.ok()) return device.status();
    world->device_ = *std::move(device);
    for (int stream = 0; stream < kTestStreams; ++stream) {
      const absl::Status status =
          world->AddStream(stream, options, max_message_bytes);
      if (!status.ok()) return status;
    }
    return world;
  }

  absl::StatusOr<std::unique_ptr<Communicator>> CreateCommunicator(
      absl::string_view name, absl::Span<const int> ranks, int rank,
      int stream) override {
    return transports_[stream][rank]->CreateCommunicator(
        name, ids_.IdOf(name, ranks, rank, stream), ranks);
  }

  UcxTransport& transport(int stream, int rank) {
    return *transports_[stream][rank];
  }
  void DestroyTransports() { transports_.clear(); }

 private:
  absl::Status AddStream(int stream, const TestWorldOptions& test,
                         int64_t max_message_bytes) {
    auto& transports = transports_.emplace_back();
    std::vector<std::string> addresses;
    for (int rank = 0; rank < test.ranks; ++rank) {
      UcxTransportOptions options;
      options.name = absl::StrCat("stream", stream);
      options.rank = rank;
      options.world = test.ranks;
      options.deadline = test.deadline;
      options.cancellation = test.cancellation;
      options.device = device_.get();
      options.max_message_bytes = max_message_bytes;
      auto transport = UcxTransport::Create(options);
      if (!transport.ok()) return transport.status();
      addresses.push_back((*transport)->address());
      transports.push_back(*std::move(transport));
    }
    absl::Status status;
    for (auto& transport : transports) {
      status.Update(transport->Connect(addresses));
    }
    return status;
  }

  std::unique_ptr<device::Device> device_;
  std::vector<std::vector<std::unique_ptr<UcxTransport>>> transports_;
  GroupIds ids_;
};

absl::StatusOr<std::unique_ptr<TestWorld>> CreateUcx(TestWorldOptions options) {
  return UcxTestWorld::Create(options);
}

// Every segment travels in many messages.
absl::StatusOr<std::unique_ptr<TestWorld>> CreateUcxInPieces(
    TestWorldOptions options) {
  return UcxTestWorld::Create(options, /*max_message_bytes=*/1024);
}

INSTANTIATE_TEST_SUITE_P(Ucx, CommunicatorConformance,
                         testing::ValuesIn(WorldsUnderTest("ucx", &CreateUcx)),
                         WorldUnderTestName);

INSTANTIATE_TEST_SUITE_P(UcxInPieces, CommunicatorConformance,
                         testing::Values(WorldUnderTest{"ucx_pieces_3", 3,
                                                        &CreateUcxInPieces}),
                         WorldUnderTestName);

// What only UCX does.
class UcxTest : public CommunicatorConformance {
 protected:
  UcxTestWorld& ucx_world() { return static_cast<UcxTestWorld&>(*world_); }
};

TEST_P(UcxTest, ErrorOfOneGroupStopsTheWholeTransport) {
  CreateWorld(absl::Milliseconds(100));
  auto others = CreateGroup("ep", all_ranks(), 0);
  const auto statuses = RunOn(communicators_, [&](int rank, Communicator& comm,
                                                  device::Stream& stream) {
    if (rank == 1) return absl::OkStatus();
    EXPECT_THAT(comm.Barrier(stream, kTag),
                StatusIs(absl::StatusCode::kDeadlineExceeded));
    return others[rank]->Barrier(stream, kTag);
  });
  EXPECT_THAT(statuses[0], StatusIs(absl::StatusCode::kDeadlineExceeded,
                                    AllOf(HasSubstr("group ep"),
                                          HasSubstr("has failed before"),
                                          HasSubstr("group world"))));
  EXPECT_THAT(ucx_world().transport(0, 0).status(),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_OK(ucx_world().transport(1, 0).status()) << "another stream's";
}

TEST_P(UcxTest, BuffersOfAFailedCollectiveAreNotTouchedAgain) {
  CreateWorld(absl::Milliseconds(200));
  std::vector<char> sent(4 << 20, 'a');
  std::vector<char> received(4 << 20, 'r');
  const auto all_to_all = [&](int rank, Communicator& comm,
                              device::Stream& stream, char* send, char* recv) {
    const int64_t half = 2 << 20;
    const Segment peer = {1 - rank, 0, half};
    return comm.AllToAllV(send, {peer}, recv, {peer}, stream, kTag);
  };
  auto statuses = RunOn(communicators_, [&](int rank, Communicator& comm,
                                            device::Stream& stream) {
    if (rank == 1) return absl::OkStatus();
    return all_to_all(rank, comm, stream, sent.data(), received.data());
  });
  EXPECT_THAT(statuses[0], StatusIs(absl::StatusCode::kDeadlineExceeded));
  // Now the peer comes, too late: nothing of it may reach the old buffers, nor
  // anything of them reach it.
  std::fill(sent.begin(), sent.end(), 'x');
  std::vector<char> late_sent(4 << 20, 'b');
  std::vector<char> late_received(4 << 20, 'r');
  statuses = RunOn(communicators_,
                   [&](int rank, Communicator& comm, device::Stream& stream) {
                     if (rank == 0) return comm.Barrier(stream, kTag);
                     return all_to_all(rank, comm, stream, late_sent.data(),
                                       late_received.data());
                   });
  EXPECT_FALSE(statuses[0].ok());
  EXPECT_THAT(statuses[1], StatusIs(absl::StatusCode::kDeadlineExceeded));
  ucx_world().DestroyTransports();
  for (char c : received) ASSERT_EQ(c, 'r');
  for (char c : late_received) ASSERT_NE(c, 'x');
}

TEST_P(UcxTest, FailedTransportsGoWithoutHangWhateverIsInFlight) {
  for (const int64_t bytes : {16, 6000, 100000, 5000000}) {
    CreateWorld(absl::Milliseconds(50));
    std::vector<char> data(bytes * 400 > (64 << 20) ? 64 << 20 : bytes * 400);
    const int count = static_cast<int>(data.size() / bytes);
    const auto statuses = RunOn(
        communicators_,
        [&](int rank, Communicator& comm, device::Stream& stream) {
          if (rank == 1) return absl::OkStatus();
          // More than any queue between the two holds.
          std::vector<Segment> sends;
          for (int i = 0; i < count; ++i)
            sends.push_back({1, i * bytes, bytes});
          return comm.AllToAllV(data.data(), sends, nullptr, {}, stream, kTag);
        });
    EXPECT_THAT(statuses[0], StatusIs(absl::StatusCode::kDeadlineExceeded,
                                      HasSubstr("not heard from rank 1")));
    const absl::Time start = absl::Now();
    ucx_world().DestroyTransports();
    EXPECT_LT(absl::Now() - start, absl::Seconds(20));
    communicators_.clear();
  }
}

TEST_P(UcxTest, CommunicatorOutlivesItsTransport) {
  CreateWorld();
  ucx_world().DestroyTransports();
  for (const absl::Status& status :
       RunOn(communicators_, [](int, Communicator&comm, device::Stream&stream) {
         return comm.Barrier(stream, kTag);
       })) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition));
  }
  EXPECT_THAT(communicators_[0]->Reserve(1 << 20),
              StatusIs(absl::StatusCode::kFailedPrecondition))
      << "the device that staging comes from may be gone";
}

TEST_P(UcxTest, MoreMessagesThanTagsTellApartAreRefused) {
  constexpr int64_t kTooMany = (1 << 17) + 1;  // of one byte each
  const RankBody bodies[] = {
      [](int, Communicator& comm, device::Stream& stream) {
        std::vector<char> data(2 * kTooMany);
        return comm.AllGather(data.data(), data.data(), kTooMany, stream, kTag);
      },
      [](int, Communicator& comm, device::Stream& stream) {
        std::vector<float> data(2 * kTooMany);
        return comm.AllReduce(data.data(), 2 * kTooMany, DType::kF32, stream,
                              kTag);
      },
      [](int, Communicator& comm, device::Stream& stream) {
        std::vector<float> data(2 * kTooMany);
        return comm.ReduceScatter(data.data(), data.data(), kTooMany,
                                  DType::kF32, stream, kTag);
      },
      [](int, Communicator& comm, device::Stream& stream) {
        std::vector<char> data(kTooMany);
        return comm.Broadcast(data.data(), kTooMany, 0, stream, kTag);
      },
      [](int rank, Communicator& comm, device::Stream& stream) {
        std::vector<char> data(2 * kTooMany);
        const Segment segment = {1 - rank, 0, kTooMany};
        return comm.AllToAllV(data.data(), {segment}, data.data() + kTooMany,
                              {segment}, stream, kTag);
      },
  };
  for (const RankBody& body : bodies) {
    TestWorldOptions options;
    options.ranks = ranks();
    ASSERT_OK_AND_ASSIGN(
        world_, UcxTestWorld::Create(options, /*max_message_bytes=*/1));
    communicators_ = CreateGroup("world", all_ranks(), 0);
    for (const absl::Status& status : RunOn(communicators_, body)) {
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                                   HasSubstr("at most 131072")));
    }
  }
}

int CountEntries(const char* path) {
  DIR* const dir = ::opendir(path);
  int entries = 0;
  while (::readdir(dir) != nullptr) ++entries;
  ::closedir(dir);
  return entries;
}

int64_t ResidentKilobytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmRSS:", 0) == 0) return std::stoll(line.substr(6));
  }
  return -1;
}

TEST_P(UcxTest, ThreadsDescriptorsAndMemoryReturnToTheBaseline) {
  int threads = 0, descriptors = 0;
  int64_t resident = 0;
  for (int job = 0; job < 20; ++job) {
    CreateWorld();
    RunAll([&](int rank, Communicator& comm, device::Stream& stream) {
      std::vector<float> data(100000 * ranks());
      return comm.AllReduce(data.data(), 100000 * ranks(), DType::kF32, stream,
                            kTag);
    });
    communicators_.clear();
    world_.reset();
    if (job == 2) {  // what a process makes once is there
      threads = CountEntries("/proc/self/task");
      descriptors = CountEntries("/proc/self/fd");
      resident = ResidentKilobytes();
    }
  }
  EXPECT_EQ(CountEntries("/proc/self/task"), threads);
  EXPECT_EQ(CountEntries("/proc/self/fd"), descriptors);
  // Sanitizers keep freed memory for a while.
  EXPECT_LT(ResidentKilobytes() - resident, 64 << 10);
}

TEST_P(UcxTest, AddressesThatDoNotFitAreRefused) {
  CreateWorld();
  ASSERT_OK_AND_ASSIGN(auto device, device::CreateCpuDevice({}));
  UcxTransportOptions options;
  options.name = "ep";
  options.world = 2;
  options.device = device.get();
  ASSERT_OK_AND_ASSIGN(auto ep, UcxTransport::Create(options));
  EXPECT_THAT(ep->CreateCommunicator("ep", 0, {0, 1}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("not connected")));
  EXPECT_THAT(ep->Connect({ep->address()}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("1 addresses for a world of 2")));
  EXPECT_THAT(ep->Connect({ep->address(), ep->address()}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("rank=1 world=2")));
  EXPECT_THAT(
      ep->Connect({ep->address(), ucx_world().transport(0, 1).address()}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("stream=ep")));
  options.rank = 2;
  EXPECT_THAT(UcxTransport::Create(options),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_P(UcxTest, IdsAreUsedOnce) {
  CreateWorld();
  UcxTransport& transport = ucx_world().transport(0, 0);
  EXPECT_OK(transport.CreateCommunicator("a", 100, {0, 1}));
  EXPECT_THAT(transport.CreateCommunicator("b", 100, {0, 1}),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(transport.CreateCommunicator("c", 4096, {0, 1}),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

INSTANTIATE_TEST_SUITE_P(Ucx, UcxTest,
                         testing::Values(WorldUnderTest{"two", 2, &CreateUcx}),
                         WorldUnderTestName);

}  // namespace
}  // namespace weft::comm

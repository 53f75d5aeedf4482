#include "kernels/comm/shm/shm.h"

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/comm/conformance.h"
#include "kernels/device/cpu/cpu_device.h"

namespace weft::comm {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const CollectiveTag kTag = {"combine.dgrad", 4, 2, 1};

// All ranks' transports in one process.
class ShmTestWorld : public TestWorld {
 public:
  static absl::StatusOr<std::unique_ptr<TestWorld>> Create(
      TestWorldOptions test) {
    auto world = std::make_unique<ShmTestWorld>();
    for (int stream = 0; stream < kTestStreams; ++stream) {
      const absl::Status status = world->AddStream(stream, test);
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

 private:
  absl::Status AddStream(int stream, const TestWorldOptions& test) {
    auto& transports = transports_.emplace_back();
    std::vector<std::string> addresses;
    for (int rank = 0; rank < test.ranks; ++rank) {
      ShmTransportOptions options;
      options.name = absl::StrCat("stream", stream);
      options.rank = rank;
      options.world = test.ranks;
      options.deadline = test.deadline;
      options.cancellation = test.cancellation;
      auto transport = ShmTransport::Create(options);
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

  std::vector<std::vector<std::unique_ptr<ShmTransport>>> transports_;
  GroupIds ids_;
};

absl::StatusOr<std::unique_ptr<TestWorld>> CreateShm(TestWorldOptions options) {
  return ShmTestWorld::Create(options);
}

INSTANTIATE_TEST_SUITE_P(Shm, CommunicatorConformance,
                         testing::ValuesIn(WorldsUnderTest("shm", &CreateShm)),
                         WorldUnderTestName);

ShmTransportOptions OptionsOf(int rank, int world) {
  ShmTransportOptions options;
  options.name = "ep";
  options.rank = rank;
  options.world = world;
  return options;
}

TEST(ShmTransportTest, OptionsThatMakeNoSenseAreRefused) {
  EXPECT_THAT(ShmTransport::Create(OptionsOf(2, 2)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("rank 2 of a world of 2")));
  ShmTransportOptions options = OptionsOf(0, 1);
  options.deadline = absl::ZeroDuration();
  EXPECT_THAT(ShmTransport::Create(options),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("a deadline > 0")));
}

// Of the ranks, those that share a group must share a host.
TEST(ShmTransportTest, ARankOnAnotherHostIsNamedWhereItSharesAGroup) {
  ASSERT_OK_AND_ASSIGN(auto first, ShmTransport::Create(OptionsOf(0, 3)));
  ASSERT_OK_AND_ASSIGN(auto second, ShmTransport::Create(OptionsOf(1, 3)));
  const size_t host = first->address().find("host=") + 5;
  const std::string here =
      first->address().substr(host, first->address().find('\n') - host);
  const std::string elsewhere = absl::StrReplaceAll(
      first->address(), {{here, "far-away"}, {"rank=0", "rank=2"}});
  ASSERT_OK(first->Connect({first->address(), second->address(), elsewhere}));
  EXPECT_OK(first->CreateCommunicator("ep", 0, {0, 1}).status());
  EXPECT_THAT(first->CreateCommunicator("ep", 1, {0, 2}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("group ep"), HasSubstr("rank=2"),
                             HasSubstr("host=far-away"),
                             HasSubstr("of one stream on one host"))));
}

TEST(ShmTransportTest, GroupsNeedAConnectionAndAnIdOfTheirOwn) {
  ASSERT_OK_AND_ASSIGN(auto transport, ShmTransport::Create(OptionsOf(0, 1)));
  EXPECT_THAT(transport->CreateCommunicator("ep", 0, {0}),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(transport->Connect({}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("0 addresses for a world of 1")));
  ASSERT_OK(transport->Connect({transport->address()}));
  EXPECT_THAT(transport->Connect({transport->address()}),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_OK(transport->CreateCommunicator("ep", 0, {0}).status());
  for (const int id : {0, -1, ShmTransport::kMaxCommunicators}) {
    EXPECT_THAT(transport->CreateCommunicator("ep", id, {0}),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr(absl::StrCat("id ", id))));
  }
}

// Two ranks of one process, each on a thread of its own.
class ShmPairTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::vector<std::string> addresses;
    for (int rank = 0; rank < 2; ++rank) {
      ShmTransportOptions options = OptionsOf(rank, 2);
      options.deadline = absl::Seconds(20);
      ASSERT_OK_AND_ASSIGN(transports_[rank], ShmTransport::Create(options));
      addresses.push_back(transports_[rank]->address());
    }
    for (int rank = 0; rank < 2; ++rank) {
      ASSERT_OK(transports_[rank]->Connect(addresses));
      ASSERT_OK_AND_ASSIGN(
          comms_[rank], transports_[rank]->CreateCommunicator("ep", 0, {0, 1}));
    }
    ASSERT_OK_AND_ASSIGN(device_, device::CreateCpuDevice({}));
    ASSERT_OK_AND_ASSIGN(stream_, device_->CreateStream("ep"));
  }

  template <typename Body>
  std::vector<absl::Status> RunBoth(Body body) {
    std::vector<absl::Status> statuses(2);
    std::thread other([&] { statuses[1] = body(1, *comms_[1]); });
    statuses[0] = body(0, *comms_[0]);
    other.join();
    return statuses;
  }

  std::unique_ptr<ShmTransport> transports_[2];
  std::unique_ptr<Communicator> comms_[2];
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<device::Stream> stream_;  // nothing runs on it
};

TEST_F(ShmPairTest, CallsThatDifferFailOnBothNamingThem) {
  float data[4] = {};
  const auto statuses = RunBoth([&](int rank, Communicator& comm) {
    float recv[8] = {};
    return comm.AllGather(data, recv, rank == 0 ? 8 : 16, *stream_, kTag);
  });
  for (const absl::Status& status : statuses) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  }
  const std::string all =
      absl::StrCat(statuses[0].message(), statuses[1].message());
  EXPECT_THAT(all, AllOf(HasSubstr("ranks disagree"), HasSubstr("rank 0"),
                         HasSubstr("rank 1"), HasSubstr(" of 8 "),
                         HasSubstr(" of 16 "), HasSubstr("combine.dgrad")));
}

TEST_F(ShmPairTest, AnErrorOfOneEndsTheWaitOfTheOther) {
  const auto statuses = RunBoth([&](int rank, Communicator& comm) {
    float data[2] = {};
    return rank == 0 ? comm.AllReduce(data, 2, DType::kI32, *stream_, kTag)
                     : comm.AllReduce(data, 2, DType::kF32, *stream_, kTag);
  });
  EXPECT_THAT(statuses[1], StatusIs(absl::StatusCode::kInvalidArgument,
                                    HasSubstr("rank 0 has left the group")));
}

// Larger than what a window holds, and not a multiple of it.
TEST_F(ShmPairTest, LargeDataGoesThroughInPieces) {
  constexpr int64_t kBytes = (5 << 20) + 12;
  const auto statuses = RunBoth([&](int rank, Communicator& comm) {
    std::vector<uint8_t> sent(2 * kBytes);
    for (int64_t i = 0; i < 2 * kBytes; ++i) {
      sent[i] = static_cast<uint8_t>(i * 7 + (i >> 16) + rank);
    }
    std::vector<uint8_t> got(2 * kBytes);
    const Segment sends[] = {{0, 0, kBytes}, {1, kBytes, kBytes}};
    const Segment recvs[] = {{0, 0, kBytes}, {1, kBytes, kBytes}};
    absl::Status status =
        comm.AllToAllV(sent.data(), sends, got.data(), recvs, *stream_, kTag);
    for (int64_t i = 0; status.ok() && i < 2 * kBytes; ++i) {
      const int64_t at = i % kBytes + rank * kBytes;
      const int from = i < kBytes ? 0 : 1;
      if (got[i] != static_cast<uint8_t>(at * 7 + (at >> 16) + from)) {
        status = absl::InternalError(absl::StrCat("byte ", i));
      }
    }
    return status;
  });
  for (const absl::Status& status : statuses) EXPECT_OK(status);
  EXPECT_EQ(comms_[0]->wire_bytes(), kBytes);
}

}  // namespace
}  // namespace weft::comm

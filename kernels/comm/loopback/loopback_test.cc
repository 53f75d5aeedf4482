#include "kernels/comm/loopback/loopback.h"

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/mutex.h"
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

class LoopbackTestWorld : public TestWorld {
 public:
  explicit LoopbackTestWorld(std::unique_ptr<LoopbackWorld> world)
      : world_(std::move(world)) {}

  absl::StatusOr<std::unique_ptr<Communicator>> CreateCommunicator(
      absl::string_view name, absl::Span<const int> ranks, int rank,
      int) override {
    return world_->CreateCommunicator(name, ranks, rank);
  }

 private:
  const std::unique_ptr<LoopbackWorld> world_;
};

absl::StatusOr<std::unique_ptr<TestWorld>> CreateWith(
    const TestWorldOptions& test, LoopbackInterceptor interceptor) {
  LoopbackOptions options;
  options.ranks = test.ranks;
  options.deadline = test.deadline;
  options.cancellation = test.cancellation;
  options.interceptor = std::move(interceptor);
  auto world = LoopbackWorld::Create(options);
  if (!world.ok()) return world.status();
  return std::make_unique<LoopbackTestWorld>(*std::move(world));
}

absl::StatusOr<std::unique_ptr<TestWorld>> CreateLoopback(
    TestWorldOptions options) {
  return CreateWith(options, nullptr);
}

INSTANTIATE_TEST_SUITE_P(Loopback, CommunicatorConformance,
                         testing::ValuesIn(WorldsUnderTest("loopback",
                                                           &CreateLoopback)),
                         WorldUnderTestName);

// What only the loopback does.
class LoopbackTest : public CommunicatorConformance {};

const CollectiveTag kTag = {"combine.dgrad", 4, 2, 1};

absl::StatusOr<std::unique_ptr<TestWorld>> CreateUnused(TestWorldOptions) {
  return absl::UnimplementedError("the test makes its own world");
}

TEST_P(LoopbackTest, DifferentCollectivesFailOnAllRanksAndNameBoth) {
  ASSERT_OK_AND_ASSIGN(world_, CreateWith({ranks()}, nullptr));
  communicators_ = CreateGroup("edp", all_ranks(), 0);
  const auto statuses = RunOn(communicators_, [&](int rank, Communicator& comm,
                                                  device::Stream& stream) {
    float data[16] = {};
    if (rank == 2) return comm.AllReduce(data, 8, DType::kF32, stream, kTag);
    return comm.AllGather(data, data, 4, stream, kTag);
  });
  for (const absl::Status& status : statuses) {
    EXPECT_THAT(
        status,
        StatusIs(absl::StatusCode::kInvalidArgument,
                 AllOf(HasSubstr("ranks disagree"), HasSubstr("all_gather"),
                       HasSubstr("on rank 0"), HasSubstr("all_reduce"),
                       HasSubstr("on rank 2"))));
  }
}

TEST_P(LoopbackTest, DifferentSizesAndOpsOfOneKindFail) {
  for (int variant = 0; variant < 3; ++variant) {
    ASSERT_OK_AND_ASSIGN(world_, CreateWith({ranks()}, nullptr));
    communicators_ = CreateGroup("edp", all_ranks(), 0);
    const auto statuses =
        RunOn(communicators_,
              [&](int rank, Communicator& comm, device::Stream& stream) {
                CollectiveTag tag = kTag;
                if (rank == 1 && variant == 1) tag.layer = 3;
                if (rank == 1 && variant == 2) tag.op = "combine.forward";
                const int64_t bytes = rank == 1 && variant == 0 ? 8 : 4;
                char send[8] = {};
                char recv[32] = {};
                return comm.AllGather(send, recv, bytes, stream, tag);
              });
    for (const absl::Status& status : statuses) {
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                                   HasSubstr("ranks disagree")));
    }
  }
}

TEST_P(LoopbackTest, OtherMemoryThanThatRegisteredIsRefused) {
  ASSERT_OK_AND_ASSIGN(auto device, device::CreateCpuDevice({}));
  ASSERT_OK_AND_ASSIGN(world_, CreateWith({ranks()}, nullptr));
  communicators_ = CreateGroup("edp", all_ranks(), 0);
  for (const bool is_registered : {true, false}) {
    const auto statuses = RunOn(communicators_, [&](int, Communicator& comm,
                                                    device::Stream& stream) {
      const auto kCategory = device::MemoryCategory::kArena;
      const auto memory = device->Allocate(64, kCategory);
      const auto other = device->Allocate(64, kCategory);
      absl::Status status = comm.RegisterMemory({memory->get()});
      device::Buffer& sent = is_registered ? **memory : **other;
      status.Update(comm.AllReduce(sent.data(), 16, DType::kF32, stream, kTag));
      status.Update(comm.Barrier(stream, kTag));  // nobody frees it before
      return status;
    });
    for (const absl::Status& status : statuses) {
      if (is_registered) {
        EXPECT_OK(status);
      } else {
        EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                                     HasSubstr("no registered memory")));
      }
    }
  }
}

TEST_P(LoopbackTest, InterceptorHoldsACollectiveBack) {
  Notification release;
  std::atomic<bool> is_released{false};
  std::atomic<int> held{0};
  ASSERT_OK_AND_ASSIGN(
      world_, CreateWith({ranks()}, [&](absl::string_view group,
                                        const CollectiveTag& tag, int rank) {
        EXPECT_EQ(group, "ep");
        EXPECT_STREQ(tag.op, "combine.dgrad");
        if (rank != 1) return absl::OkStatus();
        // The others have come, or will: none may be done before this one.
        ++held;
        release.WaitForNotification();
        return absl::OkStatus();
      }));
  communicators_ = CreateGroup("ep", all_ranks(), 0);
  std::thread releaser([&] {
    is_released = true;
    release.Notify();
  });
  RunAll([&](int, Communicator& comm, device::Stream& stream) {
    const absl::Status status = comm.Barrier(stream, kTag);
    EXPECT_TRUE(is_released);
    return status;
  });
  releaser.join();
  EXPECT_EQ(held, 1);
}

TEST_P(LoopbackTest, InterceptorsErrorIsTheCollectives) {
  ASSERT_OK_AND_ASSIGN(
      world_, CreateWith({ranks()}, [](absl::string_view, const CollectiveTag&,
                                       int rank) {
        return rank == 3 ? absl::UnavailableError("planted") : absl::OkStatus();
      }));
  communicators_ = CreateGroup("ep", all_ranks(), 0);
  const auto statuses = RunOn(communicators_, [&](int rank, Communicator& comm,
                                                  device::Stream& stream) {
    return comm.Barrier(stream, kTag);
  });
  for (const absl::Status& status : statuses) {
    EXPECT_THAT(status,
                StatusIs(absl::StatusCode::kUnavailable,
                         AllOf(HasSubstr("rank 3"), HasSubstr("planted"))));
  }
}

TEST_P(LoopbackTest, OneNameServesJobAfterJob) {
  ASSERT_OK_AND_ASSIGN(world_, CreateWith({ranks()}, nullptr));
  for (int job = 0; job < 3; ++job) {
    communicators_ = CreateGroup("ep", all_ranks(), 0);
    RunAll([&](int rank, Communicator& comm, device::Stream& stream) {
      return comm.Barrier(stream, kTag);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Loopback, LoopbackTest,
                         testing::Values(WorldUnderTest{"four", 4,
                                                        &CreateUnused}),
                         WorldUnderTestName);

}  // namespace
}  // namespace weft::comm

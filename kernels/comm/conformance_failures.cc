// Conformance: absent ranks, cancellation, mismatches and misuse.
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/mutex.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "kernels/comm/conformance.h"

namespace weft::comm {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const CollectiveTag kTag = {"dispatch.forward", 12, 3, 1};

TEST_P(CommunicatorConformance, AbsentRankIsNamedWhenTheDeadlineHasPassed) {
  if (ranks() == 1) return;
  const absl::Duration deadline = absl::Milliseconds(300);
  CreateWorld(deadline);
  const int absent = ranks() - 1;
  const absl::Time start = absl::Now();
  const auto statuses = RunOn(communicators_, [&](int rank, Communicator& comm,
                                                  device::Stream& stream) {
    if (rank == absent) return absl::OkStatus();
    std::vector<float> data(1000 * ranks());
    const absl::Status status =
        comm.AllReduce(data.data(), 1000 * ranks(), DType::kF32, stream, kTag);
    EXPECT_FALSE(comm.Barrier(stream, kTag).ok()) << "usable after an error";
    return status;
  });
  EXPECT_GE(absl::Now() - start, deadline);
  EXPECT_LT(absl::Now() - start, absl::Seconds(20));
  for (int rank = 0; rank < absent; ++rank) {
    EXPECT_THAT(statuses[rank],
                StatusIs(absl::StatusCode::kDeadlineExceeded,
                         AllOf(HasSubstr("group world"),
                               HasSubstr("all_reduce number 0"),
                               HasSubstr("dispatch.forward"),
                               HasSubstr("layer 3"), HasSubstr("microbatch 1"),
                               HasSubstr(absl::StrCat("rank ", absent)))));
  }
}

// Ranks but the last wait in `collective`; then the token fires.
TEST_P(CommunicatorConformance, CancellationWakesSleepersSoon) {
  if (ranks() == 1) return;
  ASSERT_OK_AND_ASSIGN(token_, Cancellation::Create());
  CreateWorld(absl::Seconds(100), token_.get());
  absl::Time cancelled_at;
  std::thread canceller([&] {
    // Long enough for the others to have gone to sleep.
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    cancelled_at = absl::Now();
    token_->Cancel(absl::UnavailableError("worker 7 is lost"));
  });
  const auto statuses = RunOn(communicators_, [&](int rank, Communicator& comm,
                                                  device::Stream& stream) {
    if (rank == ranks() - 1) return absl::OkStatus();
    std::vector<char> data(1 << 20);
    std::vector<Segment> all;
    for (int peer = 0; peer < ranks(); ++peer) {
      all.push_back({peer, peer * 1000, 1000});
    }
    return comm.AllToAllV(data.data(), all, data.data() + (1 << 19), all,
                          stream, kTag);
  });
  canceller.join();
  EXPECT_LT(absl::Now() - cancelled_at, absl::Seconds(20));
  for (int rank = 0; rank < ranks() - 1; ++rank) {
    EXPECT_THAT(statuses[rank], StatusIs(absl::StatusCode::kCancelled,
                                         AllOf(HasSubstr("worker 7 is lost"),
                                               HasSubstr("group world"),
                                               HasSubstr("dispatch.forward"))));
  }
}

TEST_P(CommunicatorConformance, FiredTokenStopsTheNextCollective) {
  if (ranks() == 1) return;
  ASSERT_OK_AND_ASSIGN(token_, Cancellation::Create());
  CreateWorld(absl::Seconds(100), token_.get());
  token_->Cancel(absl::CancelledError("the job was cancelled"));
  const auto statuses = RunOn(communicators_, [&](int rank, Communicator& comm,
                                                  device::Stream& stream) {
    return rank == 0 ? comm.Barrier(stream, kTag) : absl::OkStatus();
  });
  EXPECT_THAT(statuses[0], StatusIs(absl::StatusCode::kCancelled,
                                    HasSubstr("the job was cancelled")));
}

TEST_P(CommunicatorConformance, SegmentsOfDifferingSizesAreAnErrorWithBoth) {
  if (ranks() == 1) return;
  CreateWorld(absl::Seconds(2));
  const auto statuses = RunOn(communicators_, [&](int rank, Communicator& comm,
                                                  device::Stream& stream) {
    std::vector<char> data(4096);
    const Segment sent = {1, 0, 1000};
    const Segment wanted = {0, 0, 1008};
    if (rank == 0) {
      return comm.AllToAllV(data.data(), {sent}, nullptr, {}, stream, kTag);
    }
    if (rank == 1) {
      return comm.AllToAllV(nullptr, {}, data.data(), {wanted}, stream, kTag);
    }
    return comm.AllToAllV(nullptr, {}, nullptr, {}, stream, kTag);
  });
  EXPECT_THAT(statuses[1],
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("1000"), HasSubstr("1008"),
                             HasSubstr("rank 0"), HasSubstr("rank 1"))));
}

TEST_P(CommunicatorConformance, ImpossibleArgumentsAreRefused) {
  CreateWorld(absl::Seconds(2));
  const auto refused = [&](const RankBody& body) {
    communicators_ = CreateGroup("other", all_ranks(), 0);
    for (const absl::Status& status : RunOn(communicators_, body)) {
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument));
    }
  };
  float data[8] = {};
  refused([&](int, Communicator& comm, device::Stream& stream) {
    return comm.AllReduce(data, 0, DType::kBf16, stream, kTag);
  });
  if (ranks() > 1) {
    CreateWorld(absl::Seconds(2));
    refused([&](int, Communicator& comm, device::Stream& stream) {
      return comm.AllReduce(data, ranks() + 1, DType::kF32, stream, kTag);
    });
  }
  CreateWorld(absl::Seconds(2));
  refused([&](int, Communicator& comm, device::Stream& stream) {
    return comm.Broadcast(data, 4, ranks(), stream, kTag);
  });
  CreateWorld(absl::Seconds(2));
  refused([&](int, Communicator& comm, device::Stream& stream) {
    return comm.AllToAllV(data, {Segment{ranks(), 0, 4}}, nullptr, {}, stream,
                          kTag);
  });
}

TEST_P(CommunicatorConformance, GroupsThatMakeNoSenseAreRefused) {
  CreateWorld();
  const std::vector<int> beyond = {0, ranks()};
  const std::vector<int> twice = {0, 0};
  EXPECT_THAT(world_->CreateCommunicator("ep", beyond, 0, 0),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(world_->CreateCommunicator("ep", twice, 0, 0),
              StatusIs(absl::StatusCode::kInvalidArgument));
  const std::vector<int> none;
  EXPECT_THAT(world_->CreateCommunicator("ep", none, 0, 0),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace weft::comm

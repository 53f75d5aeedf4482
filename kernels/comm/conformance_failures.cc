// Conformance: absent ranks, cancellation, mismatches and misuse.
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
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
  const std::string missing = absl::StrCat("not heard from rank ", absent);
  for (int rank = 0; rank < absent; ++rank) {
    EXPECT_THAT(
        statuses[rank],
        StatusIs(
            absl::StatusCode::kDeadlineExceeded,
            AllOf(HasSubstr("group world"), HasSubstr("all_reduce number 0"),
                  HasSubstr("dispatch.forward"), HasSubstr("layer 3"),
                  HasSubstr("microbatch 1"),
                  HasSubstr(GetParam().names_absent_ranks ? missing : ""))));
  }
}

// Whether the system has put a thread of this process to sleep.
bool IsAsleep(pid_t thread) {
  std::ifstream stat(absl::StrCat("/proc/self/task/", thread, "/stat"));
  std::string text;
  std::getline(stat, text);
  // "<id> (<name>) <state> ...", where the name may hold anything.
  const size_t name_end = text.rfind(')');
  return name_end != std::string::npos && text.substr(name_end, 3) == ") S";
}

// Threads on their way into a collective, and a wait until all of them sleep.
class Sleepers {
 public:
  explicit Sleepers(int count) : missing_(count) {}

  void AwaitAllEntered() { missing_.Wait(); }

  // Called by a thread before the call in which it goes to sleep.
  void Enter() {
    {
      MutexLock lock(&mu_);
      threads_.push_back(static_cast<pid_t>(::syscall(SYS_gettid)));
    }
    missing_.DecrementCount();
  }

  void AwaitAllAsleep() {
    missing_.Wait();
    const absl::Time give_up = absl::Now() + absl::Seconds(20);
    MutexLock lock(&mu_);
    while (!std::all_of(threads_.begin(), threads_.end(), &IsAsleep)) {
      ASSERT_LT(absl::Now(), give_up) << "a waiting thread does not sleep";
      std::this_thread::yield();
    }
  }

 private:
  BlockingCounter missing_;
  Mutex mu_;
  std::vector<pid_t> threads_ ABSL_GUARDED_BY(mu_);
};

// Ranks but the last wait in an AllToAllV; then the token fires.
TEST_P(CommunicatorConformance, CancellationWakesSleepersSoon) {
  if (ranks() == 1) return;
  ASSERT_OK_AND_ASSIGN(token_, Cancellation::Create());
  CreateWorld(absl::Seconds(100), token_.get());
  Sleepers sleepers(ranks() - 1);
  absl::Time cancelled_at;
  std::thread canceller([&] {
    // Those whose collectives run elsewhere do not sleep.
    if (world_->device(0) == nullptr) {
      sleepers.AwaitAllAsleep();
    } else {
      sleepers.AwaitAllEntered();
    }
    cancelled_at = absl::Now();
    token_->Cancel(absl::UnavailableError("worker 7 is lost"));
  });
  const auto statuses = RunOn(communicators_, [&](int rank, Communicator& comm,
                                                  device::Stream& stream) {
    if (rank == ranks() - 1) return absl::OkStatus();
    std::vector<char> data(1 << 20);
    std::vector<Segment> all;
    for (int peer = 0; peer < ranks(); ++peer) {
      all.push_back({peer, peer * 1000, 1000, rank * 1000});
    }
    sleepers.Enter();
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
  if (ranks() == 1 || !GetParam().compares_sizes) return;
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

TEST_P(CommunicatorConformance, ImpossibleArgumentsAreRefusedNamingTheOp) {
  float data[8] = {};
  const RankBody bodies[] = {
      [&](int, Communicator& comm, device::Stream& stream) {
        return comm.AllGather(data, data, -4, stream, kTag);
      },
      [&](int, Communicator& comm, device::Stream& stream) {
        return comm.ReduceScatter(data, data, -1, DType::kF32, stream, kTag);
      },
      [&](int, Communicator& comm, device::Stream& stream) {
        return comm.AllReduce(data, 0, DType::kI32, stream, kTag);
      },
      [&](int, Communicator& comm, device::Stream& stream) {
        if (ranks() == 1) return absl::InvalidArgumentError("dispatch.forward");
        return comm.AllReduce(data, ranks() + 1, DType::kF32, stream, kTag);
      },
      [&](int, Communicator& comm, device::Stream& stream) {
        return comm.Broadcast(data, 4, ranks(), stream, kTag);
      },
      [&](int, Communicator& comm, device::Stream& stream) {
        return comm.Broadcast(data, -4, 0, stream, kTag);
      },
      [&](int, Communicator& comm, device::Stream& stream) {
        return comm.AllToAllV(data, {Segment{ranks(), 0, 4}}, nullptr, {},
                              stream, kTag);
      },
      [&](int, Communicator& comm, device::Stream& stream) {
        return comm.AllToAllV(nullptr, {}, data, {Segment{0, -4, 4}}, stream,
                              kTag);
      },
  };
  for (size_t i = 0; i < std::size(bodies); ++i) {
    CreateWorld(absl::Seconds(2));
    for (const absl::Status& status : RunOn(communicators_, bodies[i])) {
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                                   HasSubstr("dispatch.forward")))
          << "body " << i;
    }
  }
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

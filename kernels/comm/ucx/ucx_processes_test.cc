// The UCX communicator among processes, over shared memory and over TCP.
#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/comm/communicator.h"
#include "kernels/comm/exchange_check.h"
#include "kernels/comm/processes.h"
#include "kernels/comm/ucx/ucx.h"
#include "kernels/device/cpu/cpu_device.h"
#include "kernels/device/device.h"

namespace weft::comm::ucx {
namespace {

const CollectiveTag kTag = {"dispatch.forward", 12, 3, 1};

// One stream of a rank with its transport and its communicator of all ranks.
struct Lane {
  std::unique_ptr<device::Stream> stream;
  std::unique_ptr<UcxTransport> transport;
  std::unique_ptr<Communicator> comm;
  std::function<absl::Status(Lane&)> body;
  absl::Status status;
};

// The part of a rank in one job: three streams, as a worker has.
class Job {
 public:
  static constexpr int kLanes = 3;

  // `rank` among `world` ranks; `places` are their places in the mailbox.
  static absl::StatusOr<std::unique_ptr<Job>> Create(
      int rank, const std::vector<int>& places, absl::Duration deadline,
      Mailbox& mailbox) {
    auto job = std::make_unique<Job>();
    ASSIGN_OR_RETURN(job->device_, device::CreateCpuDevice({}));
    std::vector<int> all;
    for (size_t r = 0; r < places.size(); ++r) all.push_back(r);
    for (const char* name : {"ep", "gather", "reduce"}) {
      Lane& lane = job->lanes_.emplace_back();
      ASSIGN_OR_RETURN(lane.stream, job->device_->CreateStream(name));
      UcxTransportOptions options;
      options.name = name;
      options.rank = rank;
      options.world = static_cast<int>(places.size());
      options.deadline = deadline;
      options.device = job->device_.get();
      ASSIGN_OR_RETURN(lane.transport, UcxTransport::Create(options));
      const auto given = mailbox.Exchange(lane.transport->address());
      std::vector<std::string> addresses;
      for (int place : places) addresses.push_back(given[place]);
      RETURN_IF_ERROR(lane.transport->Connect(addresses));
      ASSIGN_OR_RETURN(lane.comm,
                       lane.transport->CreateCommunicator(name, 1, all));
    }
    return job;
  }

  // Runs `body` on all lanes at the same time, and returns the first error.
  absl::Status Run(const std::function<absl::Status(Lane&)>& body) {
    for (Lane& lane : lanes_) {
      lane.body = body;
      lane.stream->Launch(
          [](void* arg, device::Stream&) {
            Lane& lane = *static_cast<Lane*>(arg);
            lane.status = lane.body(lane);
            return absl::OkStatus();
          },
          &lane);
    }
    absl::Status status;
    for (Lane& lane : lanes_) {
      status.Update(lane.stream->Synchronize());
      status.Update(lane.status);
    }
    return status;
  }

 private:
  std::unique_ptr<device::Device> device_;
  std::vector<Lane> lanes_;
};

absl::Status Expect(bool is_true, const std::string& what) {
  return is_true ? absl::OkStatus() : absl::InternalError(what);
}

std::vector<int> PlacesUpTo(int ranks) {
  std::vector<int> places;
  for (int r = 0; r < ranks; ++r) places.push_back(r);
  return places;
}

int CountEntries(const char* path) {
  DIR* const dir = ::opendir(path);
  int entries = 0;
  while (::readdir(dir) != nullptr) ++entries;
  ::closedir(dir);
  return entries;
}

// The parameter is UCX_TLS; empty: as UcxTransport chooses.
class UcxProcessesTest : public testing::TestWithParam<const char*> {
 protected:
  void UseTransports() {
    if (GetParam()[0] != '\0') ::setenv("UCX_TLS", GetParam(), 1);
  }
};

TEST_P(UcxProcessesTest, ThreeStreamsOfFourRanksExchangeAtTheSameTime) {
  const auto results = RunProcesses(
      4, absl::Seconds(100), [&](int rank, Mailbox& mailbox) -> absl::Status {
        UseTransports();
        ASSIGN_OR_RETURN(auto job, Job::Create(rank, PlacesUpTo(4),
                                               absl::Seconds(60), mailbox));
        const absl::Status status = job->Run([](Lane& lane) {
          return ExchangeAndCheck(*lane.comm, 20, *lane.stream);
        });
        mailbox.Exchange("done");  // nobody goes while another still reads
        return status;
      });
  for (const ProcessResult& result : results) {
    EXPECT_TRUE(result.passed) << result.message;
  }
}

// Exchanges without end, and tells when it is under way; fails when a peer is
// lost.
absl::Status ExchangeForever(Lane& lane, int64_t bytes,
                             BlockingCounter* lanes_under_way) {
  Communicator& comm = *lane.comm;
  std::vector<char> sent(bytes * comm.size()), received(bytes * comm.size());
  std::vector<Segment> segments;
  for (int r = 0; r < comm.size(); ++r) {
    segments.push_back({r, r * bytes, bytes});
  }
  for (int64_t turn = 0;; ++turn) {
    if (turn == 3) lanes_under_way->DecrementCount();
    RETURN_IF_ERROR(comm.AllToAllV(sent.data(), segments, received.data(),
                                   segments, *lane.stream, kTag));
  }
}

// A job whose rank 2 is killed, then a job of those who are left.
absl::Status SurviveAKill(int rank, int64_t bytes, Mailbox& mailbox) {
  const int threads = CountEntries("/proc/self/task");
  const int descriptors = CountEntries("/proc/self/fd");
  {
    ASSIGN_OR_RETURN(
        auto job, Job::Create(rank, PlacesUpTo(4), absl::Seconds(3), mailbox));
    RETURN_IF_ERROR(job->Run([](Lane& lane) {
      return ExchangeAndCheck(*lane.comm, 1, *lane.stream);
    }));
    mailbox.Exchange("checked");
    BlockingCounter under_way(Job::kLanes);
    std::thread killer;
    if (rank == 2) {
      killer = std::thread([&] {
        under_way.Wait();
        ::kill(::getpid(), SIGKILL);
      });
    }
    const absl::Status lost = job->Run(
        [&](Lane& lane) { return ExchangeForever(lane, bytes, &under_way); });
    RETURN_IF_ERROR(Expect(absl::StrContains(lost.message(), "all_to_all_v") &&
                               absl::StrContains(lost.message(), "rank"),
                           absl::StrCat("not named: ", lost.ToString())));
    RETURN_IF_ERROR(
        Expect(absl::IsDeadlineExceeded(lost) || absl::IsUnavailable(lost),
               absl::StrCat("another error: ", lost.ToString())));
  }
  RETURN_IF_ERROR(Expect(CountEntries("/proc/self/task") == threads &&
                             CountEntries("/proc/self/fd") == descriptors,
                         "threads or descriptors are left"));
  const int new_rank = rank == 3 ? 2 : rank;
  ASSIGN_OR_RETURN(
      auto next, Job::Create(new_rank, {0, 1, 3}, absl::Seconds(60), mailbox));
  const absl::Status status = next->Run(
      [](Lane& lane) { return ExchangeAndCheck(*lane.comm, 5, *lane.stream); });
  mailbox.Exchange("done");
  return status;
}

TEST_P(UcxProcessesTest, KilledPeerIsNoticedAndTheOthersTakeTheNextJob) {
  for (const int64_t bytes : {1000, 100000, 3000000}) {
    const auto results =
        RunProcesses(4, absl::Seconds(60), [&](int rank, Mailbox& mailbox) {
          UseTransports();
          return SurviveAKill(rank, bytes, mailbox);
        });
    for (int rank = 0; rank < 4; ++rank) {
      EXPECT_EQ(results[rank].was_killed, rank == 2)
          << "rank " << rank << ": " << results[rank].message;
      EXPECT_EQ(results[rank].passed, rank != 2)
          << "rank " << rank << " with " << bytes
          << " bytes: " << results[rank].message;
    }
  }
}

double ThreadCpuSeconds() {
  rusage usage = {};
  ::getrusage(RUSAGE_THREAD, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + time.tv_usec * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Waits for a peer that does not come: with nothing to send, and with more to
// send than there is room for.
absl::Status WaitAsleep(Lane& lane) {
  std::vector<char> data(64 << 20);
  std::vector<Segment> sends, recvs;
  if (lane.comm->name() == "ep") recvs.push_back({1, 0, 1000});
  if (lane.comm->name() == "gather") {
    for (int i = 0; i < 10000; ++i) sends.push_back({1, 0, 6000});
  }
  if (lane.comm->name() == "reduce") sends.push_back({1, 0, 64 << 20});
  const double before = ThreadCpuSeconds();
  const absl::Status status = lane.comm->AllToAllV(
      data.data(), sends, data.data(), recvs, *lane.stream, kTag);
  const double used = ThreadCpuSeconds() - before;
  RETURN_IF_ERROR(Expect(absl::IsDeadlineExceeded(status), status.ToString()));
  return Expect(used < 0.5, absl::StrCat(lane.comm->name(), " used ", used,
                                         " s of the CPU in a wait of 2 s"));
}

TEST_P(UcxProcessesTest, WaitingThreadsSleep) {
  const auto results = RunProcesses(
      2, absl::Seconds(60), [&](int rank, Mailbox& mailbox) -> absl::Status {
        UseTransports();
        ASSIGN_OR_RETURN(auto job, Job::Create(rank, PlacesUpTo(2),
                                               absl::Seconds(2), mailbox));
        absl::Status status;
        if (rank == 0) status = job->Run(&WaitAsleep);
        mailbox.Exchange("done");
        return status;
      });
  for (const ProcessResult& result : results) {
    EXPECT_TRUE(result.passed) << result.message;
  }
}

INSTANTIATE_TEST_SUITE_P(Default, UcxProcessesTest, testing::Values(""));
INSTANTIATE_TEST_SUITE_P(Tcp, UcxProcessesTest, testing::Values("self,tcp"));

}  // namespace
}  // namespace weft::comm::ucx

// NCCL among processes. Where there are fewer GPUs than ranks, ranks share one:
// NCCL then takes them for ranks of different hosts.
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "gtest/gtest.h"
#include "kernels/comm/cancellation.h"
#include "kernels/comm/communicator.h"
#include "kernels/comm/cuda/testing/cuda_world.h"
#include "kernels/comm/cuda/testing/staged_communicator.h"
#include "kernels/comm/exchange_check.h"
#include "kernels/comm/nccl/nccl.h"
#include "kernels/comm/processes.h"
#include "kernels/device/device.h"

namespace weft::comm {
namespace {

const CollectiveTag kTag = {"dispatch.forward", 12, 3, 1};

absl::Status Expect(bool is_true, const std::string& what) {
  return is_true ? absl::OkStatus() : absl::InternalError(what);
}

// One rank: a stream with a communicator of all.
class Rank {
 public:
  // `rank` among the ranks whose places in the mailbox are `places`.
  static absl::StatusOr<std::unique_ptr<Rank>> Create(
      int rank, const std::vector<int>& places, absl::Duration deadline,
      Mailbox& mailbox) {
    auto made = std::make_unique<Rank>();
    RETURN_IF_ERROR(
        made->Open(rank, static_cast<int>(places.size()), deadline));
    const std::vector<std::string> given =
        mailbox.Exchange(made->transport_->address());
    std::vector<std::string> addresses;
    for (int place : places) addresses.push_back(given[place]);
    RETURN_IF_ERROR(made->Connect(addresses));
    return made;
  }

  // Work of the stream; returns what `body` returned, or else the device.
  template <typename Body>
  absl::Status Run(Body body) {
    struct Work {
      Rank* rank;
      Body* body;
      absl::Status status;
    } work = {this, &body, absl::UnknownError("did not run")};
    stream_->Launch(
        [](void* arg, device::Stream& stream) {
          Work& work = *static_cast<Work*>(arg);
          work.status = (*work.body)(*work.rank->staged_, stream);
          return absl::OkStatus();
        },
        &work);
    work.status.Update(stream_->Synchronize());
    return work.status;
  }

  Communicator& staged() { return *staged_; }
  device::Device& device() { return *device_; }
  Cancellation& token() { return *token_; }

 private:
  absl::Status Open(int rank, int world, absl::Duration deadline) {
    if (cuda::NumGpus() < world) {
      ::setenv("NCCL_HOSTID", absl::StrCat("rank", rank).c_str(), 1);
      ::setenv("NCCL_SOCKET_IFNAME", "lo", 1);
    }
    ASSIGN_OR_RETURN(token_, Cancellation::Create());
    ASSIGN_OR_RETURN(device_, cuda::CreateTestDevice(cuda::GpuOfRank(rank)));
    ASSIGN_OR_RETURN(stream_, device_->CreateStream("ep"));
    NcclTransportOptions options;
    options.name = "ep";
    options.rank = rank;
    options.world = world;
    options.deadline = deadline;
    options.cancellation = token_.get();
    options.device = device_.get();
    options.ordinal = cuda::GpuOfRank(rank);
    if (rank == 0) options.rooted_groups = {1};
    ASSIGN_OR_RETURN(transport_, NcclTransport::Create(options));
    return absl::OkStatus();
  }

  absl::Status Connect(const std::vector<std::string>& addresses) {
    RETURN_IF_ERROR(transport_->Connect(addresses));
    std::vector<int> all;
    for (size_t r = 0; r < addresses.size(); ++r) all.push_back(r);
    ASSIGN_OR_RETURN(auto inner, transport_->CreateCommunicator("ep", 1, all));
    RETURN_IF_ERROR(inner->Reserve(cuda::kStagedBytes));
    ASSIGN_OR_RETURN(std::shared_ptr<device::Buffer> memory,
                     device_->Allocate(2 * cuda::kStagedBytes,
                                       device::MemoryCategory::kArena));
    staged_ = std::make_unique<cuda::StagedCommunicator>(std::move(inner),
                                                         std::move(memory));
    return absl::OkStatus();
  }

  std::unique_ptr<Cancellation> token_;
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<device::Stream> stream_;
  std::unique_ptr<NcclTransport> transport_;
  std::unique_ptr<Communicator> staged_;
};

std::vector<int> PlacesUpTo(int ranks) {
  std::vector<int> places;
  for (int r = 0; r < ranks; ++r) places.push_back(r);
  return places;
}

void ExpectAllPass(const std::vector<ProcessResult>& results) {
  for (size_t rank = 0; rank < results.size(); ++rank) {
    EXPECT_TRUE(results[rank].passed)
        << "rank " << rank << ": " << results[rank].message;
  }
}

TEST(NcclProcessesTest, RanksSumAndExchangeToTheBit) {
  for (int ranks : {2, 3}) {
    ExpectAllPass(RunProcesses(
        ranks, absl::Seconds(50),
        [&](int rank, Mailbox& mailbox) -> absl::Status {
          ASSIGN_OR_RETURN(auto self, Rank::Create(rank, PlacesUpTo(ranks),
                                                   absl::Seconds(30), mailbox));
          const absl::Status status =
              self->Run([](Communicator& comm, device::Stream& stream) {
                return ExchangeAndCheck(comm, 10, stream);
              });
          mailbox.Exchange("done");  // nobody goes while another still reads
          return status;
        }));
  }
}

TEST(NcclProcessesTest, RecordsInPinnedMemoryAreGathered) {
  ExpectAllPass(RunProcesses(
      2, absl::Seconds(50), [&](int rank, Mailbox& mailbox) -> absl::Status {
        ASSIGN_OR_RETURN(auto self, Rank::Create(rank, PlacesUpTo(2),
                                                 absl::Seconds(30), mailbox));
        ASSIGN_OR_RETURN(auto memory, self->device().AllocateHost(3 * 800));
        char* const bytes = reinterpret_cast<char*>(memory->data());
        std::memset(bytes, 'a' + rank, 800);
        const absl::Status status =
            self->Run([&](Communicator& comm, device::Stream& stream) {
              auto& staged = static_cast<cuda::StagedCommunicator&>(comm);
              return staged.inner().AllGather(bytes, bytes + 800, 800, stream,
                                              kTag);
            });
        mailbox.Exchange("done");
        RETURN_IF_ERROR(status);
        return Expect(bytes[800] == 'a' && bytes[1599] == 'a' &&
                          bytes[1600] == 'b' && bytes[2399] == 'b',
                      "other bytes were gathered");
      }));
}

// A job whose last rank is killed, then a job of those who are left.
absl::Status SurviveAKill(int rank, Mailbox& mailbox) {
  {
    ASSIGN_OR_RETURN(auto self, Rank::Create(rank, PlacesUpTo(3),
                                             absl::Seconds(3), mailbox));
    RETURN_IF_ERROR(self->Run([](Communicator& comm, device::Stream& stream) {
      return ExchangeAndCheck(comm, 1, stream);
    }));
    mailbox.Exchange("checked");
    if (rank == 2) ::kill(::getpid(), SIGKILL);
    const absl::Status lost =
        self->Run([](Communicator& comm, device::Stream& stream) {
          return ExchangeAndCheck(comm, 1, stream);
        });
    RETURN_IF_ERROR(
        Expect((absl::IsDeadlineExceeded(lost) || absl::IsUnavailable(lost)) &&
                   absl::StrContains(lost.message(), "all_reduce number 2") &&
                   absl::StrContains(lost.message(), "dispatch.forward"),
               absl::StrCat("another error: ", lost.ToString())));
  }
  ASSIGN_OR_RETURN(auto next,
                   Rank::Create(rank, {0, 1}, absl::Seconds(30), mailbox));
  const absl::Status status =
      next->Run([](Communicator& comm, device::Stream& stream) {
        return ExchangeAndCheck(comm, 3, stream);
      });
  mailbox.Exchange("done");
  return status;
}

TEST(NcclProcessesTest, KilledPeerIsNoticedAndTheOthersTakeTheNextJob) {
  const auto results = RunProcesses(3, absl::Seconds(50), &SurviveAKill);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(results[rank].was_killed, rank == 2)
        << "rank " << rank << ": " << results[rank].message;
    EXPECT_EQ(results[rank].passed, rank != 2)
        << "rank " << rank << ": " << results[rank].message;
  }
}

TEST(NcclProcessesTest, FiredTokenEndsACollectiveThatWaitsOnTheDevice) {
  ExpectAllPass(RunProcesses(
      2, absl::Seconds(50), [](int rank, Mailbox& mailbox) -> absl::Status {
        ASSIGN_OR_RETURN(auto self, Rank::Create(rank, PlacesUpTo(2),
                                                 absl::Seconds(300), mailbox));
        absl::Status status;
        if (rank == 0) {
          status = self->Run([&](Communicator& comm, device::Stream& stream) {
            auto& staged = static_cast<cuda::StagedCommunicator&>(comm);
            const absl::Status enqueued = staged.inner().Barrier(stream, kTag);
            self->token().Cancel(absl::UnavailableError("worker 7 is lost"));
            return enqueued;
          });
          status = Expect(
              absl::IsCancelled(status) &&
                  absl::StrContains(status.message(), "barrier number 0") &&
                  absl::StrContains(status.message(), "worker 7 is lost"),
              absl::StrCat("another error: ", status.ToString()));
        }
        mailbox.Exchange("done");
        return status;
      }));
}

TEST(NcclProcessesTest, RankThatDoesNotComeToItsGroupMeetsTheDeadline) {
  ExpectAllPass(RunProcesses(
      2, absl::Seconds(50), [](int rank, Mailbox& mailbox) -> absl::Status {
        absl::Status status;
        if (rank == 0) {
          const absl::Status met =
              Rank::Create(rank, PlacesUpTo(2), absl::Seconds(1), mailbox)
                  .status();
          status = Expect(absl::IsDeadlineExceeded(met) &&
                              absl::StrContains(met.message(), "group ep"),
                          absl::StrCat("another error: ", met.ToString()));
        } else {
          ASSIGN_OR_RETURN(auto device, cuda::CreateTestDevice(0));
          NcclTransportOptions options;
          options.name = "ep";
          options.rank = 1;
          options.world = 2;
          options.device = device.get();
          ASSIGN_OR_RETURN(auto transport, NcclTransport::Create(options));
          mailbox.Exchange(transport->address());
        }
        mailbox.Exchange("done");
        return status;
      }));
}

}  // namespace
}  // namespace weft::comm

#include "kernels/comm/cuda/testing/process_suite.h"

#include <signal.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/comm/cuda/testing/staged_communicator.h"
#include "kernels/comm/cuda/testing/test_device.h"
#include "kernels/comm/exchange_check.h"
#include "kernels/comm/processes.h"

namespace weft::comm::cuda {
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
      const ProcessBackend& backend, int rank, const std::vector<int>& places,
      absl::Duration deadline, Mailbox& mailbox) {
    auto made = std::make_unique<Rank>();
    RETURN_IF_ERROR(
        made->Open(backend, rank, static_cast<int>(places.size()), deadline));
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

  device::Device& device() { return *device_; }
  Cancellation& token() { return *token_; }

 private:
  absl::Status Open(const ProcessBackend& backend, int rank, int world,
                    absl::Duration deadline) {
    const int gpu = GpuOfRank(rank);
    ASSIGN_OR_RETURN(token_, Cancellation::Create());
    ASSIGN_OR_RETURN(device_, CreateTestDevice(gpu));
    ASSIGN_OR_RETURN(stream_, device_->CreateStream("ep"));
    ASSIGN_OR_RETURN(transport_,
                     backend.create({rank, world, deadline, token_.get(),
                                     device_.get(), gpu}));
    return absl::OkStatus();
  }

  absl::Status Connect(const std::vector<std::string>& addresses) {
    RETURN_IF_ERROR(transport_->Connect(addresses));
    std::vector<int> all;
    for (size_t r = 0; r < addresses.size(); ++r) all.push_back(r);
    ASSIGN_OR_RETURN(auto inner, transport_->CreateCommunicator(all));
    ASSIGN_OR_RETURN(staged_,
                     StagedCommunicator::Create(std::move(inner), *device_));
    return absl::OkStatus();
  }

  std::unique_ptr<Cancellation> token_;
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<device::Stream> stream_;
  std::unique_ptr<ProcessTransport> transport_;
  std::unique_ptr<StagedCommunicator> staged_;
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

TEST_P(CudaProcesses, RanksSumAndExchangeToTheBit) {
  for (int ranks : {2, 3}) {
    ExpectAllPass(RunProcesses(
        ranks, absl::Seconds(25),
        [&](int rank, Mailbox& mailbox) -> absl::Status {
          ASSIGN_OR_RETURN(auto self,
                           Rank::Create(GetParam(), rank, PlacesUpTo(ranks),
                                        absl::Seconds(8), mailbox));
          const absl::Status status =
              self->Run([](StagedCommunicator& comm, device::Stream& stream) {
                return ExchangeAndCheck(comm, 4, stream);
              });
          mailbox.Exchange("done");  // nobody goes while another still reads
          return status;
        }));
  }
}

// More than a small block, so that it travels in pieces where there are any.
TEST_P(CudaProcesses, RecordsInPinnedMemoryAreGathered) {
  constexpr int64_t kBytes = 700 << 10;
  ExpectAllPass(RunProcesses(
      2, absl::Seconds(25), [&](int rank, Mailbox& mailbox) -> absl::Status {
        ASSIGN_OR_RETURN(auto self,
                         Rank::Create(GetParam(), rank, PlacesUpTo(2),
                                      absl::Seconds(8), mailbox));
        ASSIGN_OR_RETURN(auto own, self->device().AllocateHost(kBytes));
        ASSIGN_OR_RETURN(auto all, self->device().AllocateHost(2 * kBytes));
        std::vector<char> expected(2 * kBytes);
        for (int64_t i = 0; i < kBytes; ++i) {
          expected[i] = static_cast<char>(i * 7);
          expected[kBytes + i] = static_cast<char>(i * 11 + 1);
        }
        std::memcpy(own->data(), expected.data() + rank * kBytes, kBytes);
        const absl::Status status =
            self->Run([&](StagedCommunicator& comm, device::Stream& stream) {
              absl::Status called = comm.inner().AllGather(
                  own->data(), all->data(), kBytes, stream, kTag);
              called.Update(
                  comm.inner().Broadcast(own->data(), kBytes, 1, stream, kTag));
              return called;
            });
        mailbox.Exchange("done");
        RETURN_IF_ERROR(status);
        RETURN_IF_ERROR(
            Expect(std::memcmp(all->data(), expected.data(), 2 * kBytes) == 0,
                   "other bytes were gathered"));
        return Expect(
            std::memcmp(own->data(), expected.data() + kBytes, kBytes) == 0,
            "other bytes were broadcast");
      }));
}

// A job whose last rank is killed, then a job of those who are left.
absl::Status SurviveAKill(const ProcessBackend& backend, int rank,
                          Mailbox& mailbox) {
  {
    ASSIGN_OR_RETURN(auto self, Rank::Create(backend, rank, PlacesUpTo(3),
                                             absl::Seconds(3), mailbox));
    RETURN_IF_ERROR(
        self->Run([](StagedCommunicator& comm, device::Stream& stream) {
          return ExchangeAndCheck(comm, 1, stream);
        }));
    mailbox.Exchange("checked");
    if (rank == 2) ::kill(::getpid(), SIGKILL);
    const absl::Status lost =
        self->Run([](StagedCommunicator& comm, device::Stream& stream) {
          return ExchangeAndCheck(comm, 1, stream);
        });
    RETURN_IF_ERROR(
        Expect((absl::IsDeadlineExceeded(lost) || absl::IsUnavailable(lost)) &&
                   absl::StrContains(lost.message(), "all_reduce number 3") &&
                   absl::StrContains(lost.message(), "dispatch.forward"),
               absl::StrCat("another error: ", lost.ToString())));
  }
  ASSIGN_OR_RETURN(auto next, Rank::Create(backend, rank, {0, 1},
                                           absl::Seconds(8), mailbox));
  const absl::Status status =
      next->Run([](StagedCommunicator& comm, device::Stream& stream) {
        return ExchangeAndCheck(comm, 2, stream);
      });
  mailbox.Exchange("done");
  return status;
}

TEST_P(CudaProcesses, KilledPeerIsNoticedAndTheOthersTakeTheNextJob) {
  const auto results =
      RunProcesses(3, absl::Seconds(25), [](int rank, Mailbox& mailbox) {
        return SurviveAKill(GetParam(), rank, mailbox);
      });
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(results[rank].was_killed, rank == 2)
        << "rank " << rank << ": " << results[rank].message;
    EXPECT_EQ(results[rank].passed, rank != 2)
        << "rank " << rank << ": " << results[rank].message;
  }
}

TEST_P(CudaProcesses, FiredTokenEndsACollectiveThatWaitsOnTheDevice) {
  ExpectAllPass(RunProcesses(
      2, absl::Seconds(25), [](int rank, Mailbox& mailbox) -> absl::Status {
        ASSIGN_OR_RETURN(auto self,
                         Rank::Create(GetParam(), rank, PlacesUpTo(2),
                                      absl::Seconds(300), mailbox));
        absl::Status status;
        if (rank == 0) {
          status = self->Run([&](StagedCommunicator& comm,
                                 device::Stream& stream) {
            const absl::Status enqueued = comm.inner().Barrier(stream, kTag);
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

TEST_P(CudaProcesses, RankThatDoesNotComeToItsGroupMeetsTheDeadline) {
  ExpectAllPass(RunProcesses(
      2, absl::Seconds(25), [](int rank, Mailbox& mailbox) -> absl::Status {
        absl::Status status;
        if (rank == 0) {
          const absl::Status met = Rank::Create(GetParam(), rank, PlacesUpTo(2),
                                                absl::Seconds(1), mailbox)
                                       .status();
          status = Expect(absl::IsDeadlineExceeded(met) &&
                              absl::StrContains(met.message(), "group ep"),
                          absl::StrCat("another error: ", met.ToString()));
          mailbox.Exchange("done");
          return status;
        }
        const int gpu = GpuOfRank(rank);
        ASSIGN_OR_RETURN(auto device, CreateTestDevice(gpu));
        ASSIGN_OR_RETURN(auto transport,
                         GetParam().create({rank, 2, absl::Seconds(1), nullptr,
                                            device.get(), gpu}));
        mailbox.Exchange(transport->address());
        mailbox.Exchange("done");
        return absl::OkStatus();
      }));
}

}  // namespace
}  // namespace weft::comm::cuda

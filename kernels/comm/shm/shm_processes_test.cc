// Ranks that are processes of their own.
#include <signal.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "gtest/gtest.h"
#include "kernels/comm/exchange_check.h"
#include "kernels/comm/processes.h"
#include "kernels/comm/shm/shm.h"
#include "kernels/device/cpu/cpu_device.h"

namespace weft::comm {
namespace {

constexpr int kRanks = 3;

absl::StatusOr<std::unique_ptr<Communicator>> Connect(int rank,
                                                      Mailbox& mailbox,
                                                      absl::Duration deadline) {
  ShmTransportOptions options;
  options.name = "ep";
  options.rank = rank;
  options.world = kRanks;
  options.deadline = deadline;
  ASSIGN_OR_RETURN(auto transport, ShmTransport::Create(options));
  RETURN_IF_ERROR(transport->Connect(mailbox.Exchange(transport->address())));
  auto comm = transport->CreateCommunicator("ep", 0, {0, 1, 2});
  mailbox.Exchange("open");  // all have opened what this rank may now close
  return comm;
}

TEST(ShmProcessesTest, ValuesComeThrough) {
  const auto results = RunProcesses(
      kRanks, absl::Seconds(60),
      [](int rank, Mailbox& mailbox) -> absl::Status {
        ASSIGN_OR_RETURN(auto comm, Connect(rank, mailbox, absl::Seconds(30)));
        ASSIGN_OR_RETURN(auto device, device::CreateCpuDevice({}));
        ASSIGN_OR_RETURN(auto stream, device->CreateStream("ep"));
        return ExchangeAndCheck(*comm, 20, *stream);
      });
  for (const ProcessResult& result : results) {
    EXPECT_TRUE(result.passed) << result.message;
  }
}

TEST(ShmProcessesTest, ThoseThatWaitForADeadRankNameItWhenTimeIsUp) {
  const auto results = RunProcesses(
      kRanks, absl::Seconds(60),
      [](int rank, Mailbox& mailbox) -> absl::Status {
        ASSIGN_OR_RETURN(auto comm, Connect(rank, mailbox, absl::Seconds(1)));
        if (rank == 2) ::kill(::getpid(), SIGKILL);
        ASSIGN_OR_RETURN(auto device, device::CreateCpuDevice({}));
        ASSIGN_OR_RETURN(auto stream, device->CreateStream("ep"));
        const absl::Status status = comm->Barrier(*stream, {});
        if (status.code() == absl::StatusCode::kDeadlineExceeded &&
            absl::StrContains(status.message(), "not heard from rank 2")) {
          return absl::OkStatus();
        }
        return absl::InternalError(absl::StrCat("got ", status.ToString()));
      });
  EXPECT_TRUE(results[0].passed) << results[0].message;
  EXPECT_TRUE(results[1].passed) << results[1].message;
  EXPECT_TRUE(results[2].was_killed);
}

}  // namespace
}  // namespace weft::comm

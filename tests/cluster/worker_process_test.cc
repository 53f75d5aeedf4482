// The worker binary by itself: its flags and its end.
#include <signal.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cluster/await.h"
#include "tests/cluster/files.h"
#include "tests/cluster/subprocess.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Optional;

constexpr absl::Duration kLong = absl::Seconds(30);

// Starts the worker; what it prints goes to a file of its own.
std::unique_ptr<Subprocess> StartWorker(std::vector<std::string> flags) {
  static int started = 0;
  flags.insert(flags.begin(), "worker/worker");
  absl::StatusOr<std::unique_ptr<Subprocess>> worker = Subprocess::Start(
      flags, absl::StrCat(TestFolder(), "/worker-", started++, ".log"));
  EXPECT_OK(worker.status());
  return worker.ok() ? *std::move(worker) : nullptr;
}

// Nobody listens there.
constexpr char kNoCoordinator[] = "--coordinator=127.0.0.1:1";

TEST(WorkerProcessTest, HelpNamesTheFlagsAndSucceeds) {
  const auto worker = StartWorker({"--help"});
  EXPECT_THAT(worker->Wait(kLong), Optional(0));
  EXPECT_THAT(ReadFile(worker->log()),
              AllOf(HasSubstr("--coordinator"), HasSubstr("--worker_id"),
                    HasSubstr("--device_memory"), HasSubstr("--http_address"),
                    HasSubstr("--released_memory"), HasSubstr("--grace")));
}

TEST(WorkerProcessTest, WrongCommandLineIsTwoAndNamesTheFlag) {
  for (const char* flag : {"--bogus=1", "--device=tpu", "--device_memory=-1",
                           "--released_memory=maybe", "--check_live_set",
                           "--measure_memory", "--grace=soon"}) {
    const auto worker = StartWorker({kNoCoordinator, flag});
    EXPECT_THAT(worker->Wait(kLong), Optional(2)) << flag;
    const std::string name =
        std::string(flag).substr(0, std::string(flag).find('='));
    EXPECT_THAT(ReadFile(worker->log()), HasSubstr(name));
  }
}

TEST(WorkerProcessTest, HttpAddressThatCannotBeTakenIsOne) {
  const auto worker =
      StartWorker({kNoCoordinator, "--http_address=192.0.2.1:80"});
  EXPECT_THAT(worker->Wait(kLong), Optional(1));
  EXPECT_THAT(ReadFile(worker->log()), HasSubstr("192.0.2.1:80"));
}

TEST(WorkerProcessTest, SigtermEndsAWorkerWithoutACoordinator) {
  for (const char* http : {"--http_address=", "--http_address=127.0.0.1:0"}) {
    const auto worker = StartWorker({kNoCoordinator, http});
    // Says that it tries again: it serves.
    ASSERT_TRUE(Await(
        [&] {
          return ReadFile(worker->log()).find("retry_in") != std::string::npos;
        },
        kLong));
    worker->Signal(SIGTERM);
    EXPECT_THAT(worker->Wait(kLong), Optional(0));
  }
}

TEST(WorkerProcessTest, RunsWithOneOpenMpThreadUnderItsOwnName) {
  const auto worker = StartWorker({kNoCoordinator});
  ASSERT_TRUE(Await(
      [&] {
        return ReadFile(worker->log()).find("retry_in") != std::string::npos;
      },
      kLong));
  const std::string proc = absl::StrCat("/proc/", worker->pid());
  EXPECT_THAT(ReadFile(proc + "/environ"), HasSubstr("OMP_NUM_THREADS=1"));
  EXPECT_EQ(ReadFile(proc + "/comm"), "worker\n");
}

}  // namespace
}  // namespace weft::testing

// Long-lived daemons: what they hold from job to job, and what happens when a
// process dies.
#include <dirent.h>
#include <signal.h>

#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cluster/await.h"
#include "tests/cluster/cluster.h"
#include "tests/cluster/files.h"
#include "tests/cluster/jobs.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// From the loss of a worker to the end of its job. The product promises it:
// whoever waits for a lost peer needs an end.
constexpr absl::Duration kLossNoticed = absl::Seconds(5);

// Heap that stays resident between jobs: free memory that shares pages with
// blocks that live on, and what gRPC and metrics keep. Half a megabyte is
// usual; the cancelled job takes several times as much as is tolerated.
constexpr int64_t kResidentSlackBytes = 4 << 20;

// Whether no thread of the process runs or wants to.
bool IsAsleep(pid_t pid) {
  const std::string tasks = absl::StrCat("/proc/", pid, "/task");
  DIR* dir = opendir(tasks.c_str());
  if (dir == nullptr) return true;
  bool is_asleep = true;
  while (const dirent* entry = readdir(dir)) {
    if (entry->d_name[0] == '.') continue;
    const std::string stat =
        ReadFile(absl::StrCat(tasks, "/", entry->d_name, "/stat"));
    const size_t name_end = stat.rfind(") ");
    if (name_end != std::string::npos && stat[name_end + 2] == 'R') {
      is_asleep = false;
    }
  }
  closedir(dir);
  return is_asleep;
}

class LifecycleTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(cluster_, Cluster::Start({}));
    ASSERT_OK_AND_ASSIGN(
        data_, WriteDataset("text", 20000, kVocab, /*constant=*/false));
  }

  v1::TrainingJob Job(int world) {
    ClusterJob options;
    options.data = data_;
    options.world = world;
    return MakeJob(options);
  }

  void ExpectRuns(const v1::TrainingJob& job) {
    ASSERT_OK_AND_ASSIGN(JobResult result, cluster_->Run(job));
    EXPECT_EQ(result.job.state(), v1::JOB_STATE_SUCCEEDED)
        << result.job.message();
    EXPECT_THAT(result.steps, SizeIs(job.steps()));
  }

  // Submits an endless job and returns it after its second step.
  absl::StatusOr<v1::Job> StartEndless() {
    const absl::StatusOr<v1::Job> job = cluster_->Submit(MakeEndlessJob(data_));
    if (!job.ok()) return job;
    return cluster_->AwaitJob(
        job->id(), [](const v1::Job& now) { return now.step() >= 2; });
  }

  // Runs an endless job until its second step and until heartbeats show all it
  // takes, then cancels it.
  void CancelMidStep() {
    ASSERT_OK_AND_ASSIGN(v1::Job job, StartEndless());
    ASSERT_OK(cluster_->AwaitWorkers([&](const v1::Worker& worker) {
      return worker.job_id() == job.id() &&
             worker.figures().device_bytes() > 3 * kResidentSlackBytes;
    }));
    ASSERT_OK(cluster_->Cancel(job.id()));
    ASSERT_OK_AND_ASSIGN(job, cluster_->AwaitJob(job.id(), &HasEnded));
    EXPECT_EQ(job.state(), v1::JOB_STATE_CANCELLED) << job.message();
  }

  int RankOf(const v1::Job& job, const std::string& worker) {
    const auto& workers = job.workers();
    return std::find(workers.begin(), workers.end(), worker) - workers.begin();
  }

  // Stops a worker in its tracks and returns when all others wait for it.
  void Freeze(int victim) {
    cluster_->worker(victim).Signal(SIGSTOP);
    // A thread that sleeps may be about to go on; one that sleeps each of many
    // times it is looked at waits for somebody.
    int times = 0;
    const bool all_wait = Await(
        [&] {
          for (int i = 0; i < 4; ++i) {
            if (i != victim && !IsAsleep(cluster_->worker(i).pid())) times = -1;
          }
          return ++times >= 5;
        },
        absl::Seconds(2));
    EXPECT_TRUE(all_wait);
  }

  std::unique_ptr<Cluster> cluster_;
  std::string data_;
};

TEST_F(LifecycleTest, DaemonsReturnToTheirBaselineJobAfterJob) {
  // The first jobs make what stays for good: lazily loaded code and pools.
  ExpectRuns(Job(4));
  CancelMidStep();
  ASSERT_OK_AND_ASSIGN(const std::vector<v1::Worker> before,
                       cluster_->AwaitWorkers(&IsIdle));
  for (int i = 0; i < 3; ++i) ExpectRuns(Job(4));
  CancelMidStep();
  auto is_at_baseline = [&](const v1::Worker& worker) {
    if (!IsIdle(worker)) return false;
    for (const v1::Worker& old : before) {
      if (old.id() != worker.id()) continue;
      const v1::ProcessFigures& then = old.figures();
      const v1::ProcessFigures& now = worker.figures();
      return now.device_bytes() == 0 && now.threads() <= then.threads() &&
             now.open_fds() <= then.open_fds() &&
             now.tcp_sockets() <= then.tcp_sockets() &&
             now.resident_bytes() <=
                 then.resident_bytes() + kResidentSlackBytes;
    }
    return false;
  };
  const auto after = cluster_->AwaitWorkers(is_at_baseline);
  EXPECT_OK(after.status());
  for (int i = 0; i < 4; ++i) {
    std::cout << before[i].id()
              << " before: " << before[i].figures().ShortDebugString() << "\n";
    if (!after.ok()) continue;
    std::cout << before[i].id()
              << " after:  " << (*after)[i].figures().ShortDebugString()
              << "\n";
  }
  ExpectRuns(Job(4));
}

// How many of the other workers say that the job was interrupted while they
// were in an all-to-all.
int InterruptedInAllToAll(Cluster& cluster, const std::string& job,
                          int victim) {
  int count = 0;
  for (int i = 0; i < 4; ++i) {
    if (i == victim) continue;
    for (absl::string_view line :
         absl::StrSplit(ReadFile(cluster.worker(i).log()), '\n')) {
      if (absl::StrContains(line, job) &&
          absl::StrContains(line, "interrupted") &&
          absl::StrContains(line, "group ep")) {
        ++count;
        break;
      }
    }
  }
  return count;
}

// A straight kill hits a rank wherever it is; one after a freeze hits it while
// its peers wait in a collective, nearly all of which are all-to-alls.
TEST_F(LifecycleTest, KilledWorkerFailsTheJobAndTheOthersTakeTheNext) {
  int killed_in_all_to_all = 0;
  for (int attempt = 0; attempt < 4; ++attempt) {
    const int victim = attempt;
    const std::string name = absl::StrCat("worker-", victim);
    ASSERT_OK_AND_ASSIGN(v1::Job job, StartEndless());
    EXPECT_THAT(ReadFile(absl::StrCat("/proc/", cluster_->worker(victim).pid(),
                                      "/maps")),
                ContainsRegex("ucx_shm|SYSV"))
        << "the ranks do not exchange rows over shared memory";
    if (attempt % 2 == 1) Freeze(victim);
    const absl::Time killed = absl::Now();
    cluster_->worker(victim).Signal(SIGKILL);
    ASSERT_OK_AND_ASSIGN(job, cluster_->AwaitJob(job.id(), &HasEnded));
    const absl::Duration noticed = absl::Now() - killed;
    std::cout << "all-to-all is "
              << 100 * job.last_step().ep_seconds() /
                     job.last_step().step_seconds()
              << "% of a step; failed after " << noticed << ": "
              << job.message() << "\n";
    EXPECT_LT(noticed, kLossNoticed);
    EXPECT_EQ(job.state(), v1::JOB_STATE_FAILED);
    EXPECT_THAT(job.message(),
                AllOf(HasSubstr(absl::StrCat("rank ", RankOf(job, name))),
                      HasSubstr(name)));
    ASSERT_OK(cluster_->AwaitWorkers([&](const v1::Worker& worker) {
      return worker.id() == name || IsIdle(worker);
    }));
    const int waiting = InterruptedInAllToAll(*cluster_, job.id(), victim);
    std::cout << waiting << " of 3 were waiting in an all-to-all\n";
    killed_in_all_to_all += waiting == 3;
    // The three that are left take the next job, and a new one joins them.
    ExpectRuns(Job(2));
    ASSERT_OK(cluster_->RestartWorker(victim));
    ASSERT_OK(cluster_->AwaitWorkers(&IsIdle));
  }
  EXPECT_GT(killed_in_all_to_all, 0);
  ExpectRuns(Job(4));
}

TEST_F(LifecycleTest, WorkerAskedToEndSaysSoAndIsGone) {
  ASSERT_OK_AND_ASSIGN(v1::Job job, StartEndless());
  cluster_->worker(1).Signal(SIGTERM);
  EXPECT_THAT(cluster_->worker(1).Wait(absl::Seconds(20)),
              ::testing::Optional(0));
  ASSERT_OK_AND_ASSIGN(job, cluster_->AwaitJob(job.id(), &HasEnded));
  EXPECT_EQ(job.state(), v1::JOB_STATE_FAILED);
  EXPECT_THAT(job.message(), HasSubstr("worker-1"));
  ExpectRuns(Job(2));
}

TEST_F(LifecycleTest, WorkersOutliveTheCoordinatorAndComeBackToIt) {
  ASSERT_OK_AND_ASSIGN(const std::vector<v1::Worker> before,
                       cluster_->Workers());
  ASSERT_OK_AND_ASSIGN(v1::Job job, StartEndless());
  ASSERT_OK(cluster_->RestartCoordinator());
  // Attached anew by the same processes, with nothing left of the job.
  ASSERT_TRUE(Await(
      [&] {
        const auto workers = cluster_->Workers();
        return workers.ok() && workers->size() == before.size();
      },
      absl::Seconds(20)));
  ASSERT_OK_AND_ASSIGN(std::vector<v1::Worker> after,
                       cluster_->AwaitWorkers([](const v1::Worker& worker) {
                         return IsIdle(worker) &&
                                worker.figures().threads() > 0;
                       }));
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_EQ(after[i].id(), before[i].id());
    EXPECT_EQ(after[i].incarnation(), before[i].incarnation());
    EXPECT_EQ(after[i].pid(), before[i].pid());
    EXPECT_EQ(after[i].figures().device_bytes(), 0);
  }
  ASSERT_OK_AND_ASSIGN(job, cluster_->Get(job.id()));
  EXPECT_EQ(job.state(), v1::JOB_STATE_FAILED);
  ExpectRuns(Job(4));
}

}  // namespace
}  // namespace weft::testing

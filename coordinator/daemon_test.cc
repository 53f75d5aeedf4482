#include "coordinator/daemon.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "base/status_matchers.h"
#include "coordinator/service/test_client.h"
#include "coordinator/store/sqlite.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "monitoring/http_get.h"
#include "schedule/rules/test_jobs.h"

namespace weft::coordinator {
namespace {

using monitoring::HttpGet;
using schedule::MakeLegalJob;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::StartsWith;

Daemon::Options MakeOptions() {
  const std::filesystem::path folder =
      std::filesystem::path(std::getenv("TEST_TMPDIR")) /
      ::testing::UnitTest::GetInstance()->current_test_info()->name();
  Daemon::Options options;
  options.state_dir = folder / "deep" / "state";
  options.artifacts_dir = folder / "artifacts";
  options.port_file = folder / "ports.json";
  return options;
}

std::string ReadFile(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// Runs a job of one worker to its end.
void RunJob(TestWorker& worker, int steps) {
  worker.GetReady();
  worker.SayPrepared();
  EXPECT_TRUE(worker.Read().has_start());
  for (int step = 1; step <= steps; ++step) worker.SayStep(step, 3.0 / step);
  worker.SayFinished(0, steps);
}

v1::Job Await(TestClient& client, const std::string& id, v1::JobState state) {
  v1::Job job;
  const auto deadline = DeadlineAfter(absl::Seconds(30));
  do {
    job = client.Get(id);
    std::this_thread::yield();
  } while (job.state() != state && std::chrono::steady_clock::now() < deadline);
  EXPECT_EQ(job.state(), state) << job.message();
  return job;
}

TEST(DaemonTest, RunsAJobWithARealPlanAndShowsItsMetrics) {
  const Daemon::Options options = MakeOptions();
  ASSERT_OK_AND_ASSIGN(auto daemon, Daemon::Start(options));
  EXPECT_THAT(ReadFile(options.port_file),
              MatchesRegex("\\{\"grpc\": \"127.0.0.1:[0-9]+\", \"http\": "
                           "\"127.0.0.1:[0-9]+\", \"pid\": [0-9]+\\}\n"));
  EXPECT_THAT(ReadFile(options.port_file), HasSubstr(daemon->grpc_address()));
  TestClient client(daemon->grpc_address());
  TestWorker worker(daemon->grpc_address(), "w-0");
  EXPECT_TRUE(worker.Read().has_registered());
  v1::Job job;
  ASSERT_TRUE(client.Submit(MakeLegalJob(1, 1), &job).ok());
  EXPECT_EQ(job.artifacts(),
            absl::StrCat(options.artifacts_dir, "/", job.id()));
  RunJob(worker, 3);
  EXPECT_GT(worker.prepare.train().ops_size(), 0);
  Await(client, job.id(), v1::JOB_STATE_SUCCEEDED);

  const std::string metrics = HttpGet(daemon->http_address(), "/metrics");
  EXPECT_THAT(metrics, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(
      metrics,
      AllOf(HasSubstr("text/plain; version=0.0.4"),
            HasSubstr(absl::StrCat("weft_loss{job_id=\"", job.id(), "\"} 1\n")),
            HasSubstr(absl::StrCat("weft_tokens_total{job_id=\"", job.id(),
                                   "\"} 192\n")),
            HasSubstr("weft_worker_up{worker=\"w-0\"} 1\n")));
  EXPECT_THAT(HttpGet(daemon->http_address(), "/healthz"), HasSubstr("ok\n"));
  EXPECT_THAT(HttpGet(daemon->http_address(), "/readyz"), HasSubstr("ok\n"));
  EXPECT_THAT(HttpGet(daemon->http_address(), "/statusz"),
              AllOf(HasSubstr("\"id\":\"w-0\""),
                    HasSubstr(absl::StrCat("\"id\":\"", job.id(), "\""))));
  EXPECT_THAT(HttpGet(daemon->http_address(), "/metricsx"),
              HasSubstr("404 Not Found"));
  EXPECT_THAT(HttpGet(daemon->http_address(), "/"),
              AllOf(StartsWith("HTTP/1.1 200 OK\r\n"), HasSubstr("w-0"),
                    HasSubstr(job.id()), HasSubstr("succeeded")));
  daemon.reset();  // has written all records then
  EXPECT_THAT(ReadFile(job.artifacts() + "/steps.jsonl"),
              AllOf(HasSubstr("\"step\":1,\"loss\":3,"),
                    HasSubstr("\"step\":3,\"loss\":1,")));
  EXPECT_TRUE(std::filesystem::exists(job.artifacts() + "/tensorboard"));
}

TEST(DaemonTest, RemembersAcrossARestart) {
  const Daemon::Options options = MakeOptions();
  v1::Job finished;
  v1::Job running;
  v1::Job queued;
  {
    ASSERT_OK_AND_ASSIGN(auto daemon, Daemon::Start(options));
    TestClient client(daemon->grpc_address());
    TestWorker worker(daemon->grpc_address(), "w-0");
    worker.Read();
    ASSERT_TRUE(client.Submit(MakeLegalJob(1, 1), &finished).ok());
    RunJob(worker, 3);
    Await(client, finished.id(), v1::JOB_STATE_SUCCEEDED);
    ASSERT_TRUE(client.Submit(MakeLegalJob(1, 1), &running).ok());
    ASSERT_TRUE(client.Submit(MakeLegalJob(1, 1), &queued, "r").ok());
    EXPECT_OK(daemon->Shutdown());
    for (const char* path : {"/healthz", "/readyz", "/statusz"}) {
      EXPECT_THAT(HttpGet(daemon->http_address(), path),
                  StartsWith("HTTP/1.1 503"));
    }
    EXPECT_EQ(worker.Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  }
  ASSERT_OK_AND_ASSIGN(auto daemon, Daemon::Start(options));
  TestClient client(daemon->grpc_address());
  EXPECT_EQ(client.Get(finished.id()).last_step().loss(), 1);
  EXPECT_EQ(client.Get(running.id()).state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(client.Get(queued.id()).state(), v1::JOB_STATE_QUEUED);
  v1::Job again;
  ASSERT_TRUE(client.Submit(MakeLegalJob(1, 1), &again, "r").ok());
  EXPECT_EQ(again.id(), queued.id());
}

// Real time: the daemon itself must notice.
TEST(DaemonTest, ASilentWorkerFailsItsJob) {
  Daemon::Options options = MakeOptions();
  options.heartbeat_interval = absl::Milliseconds(50);
  options.heartbeat_timeout = absl::Milliseconds(300);
  options.http_address = "";
  ASSERT_OK_AND_ASSIGN(auto daemon, Daemon::Start(options));
  EXPECT_EQ(daemon->http_address(), "");
  TestClient client(daemon->grpc_address());
  TestWorker worker(daemon->grpc_address(), "w-0");
  worker.Read();
  v1::Job job;
  ASSERT_TRUE(client.Submit(MakeLegalJob(1, 1), &job).ok());
  EXPECT_THAT(Await(client, job.id(), v1::JOB_STATE_FAILED).message(),
              HasSubstr("rank 0 (worker w-0) was lost: no sign of life"));
}

// A coordinator with a job that runs, whose store can be made to hang: another
// connection holds the database, and every write waits for it for two seconds.
class HangingStoreTest : public ::testing::Test {
 protected:
  void Start(absl::Duration heartbeat_timeout) {
    Daemon::Options options = MakeOptions();
    options.heartbeat_interval = absl::Milliseconds(10);
    options.heartbeat_timeout = heartbeat_timeout;
    ASSERT_OK_AND_ASSIGN(daemon_, Daemon::Start(options));
    client_ = std::make_unique<TestClient>(daemon_->grpc_address());
    worker_ = std::make_unique<TestWorker>(daemon_->grpc_address(), "w-0");
    worker_->Read();
    v1::Job job;
    ASSERT_TRUE(client_->Submit(MakeLegalJob(1, 1), &job).ok());
    worker_->GetReady();
    ASSERT_OK_AND_ASSIGN(
        database_, SqliteDatabase::Open(options.state_dir + "/coordinator.db"));
  }
  void Hang() { ASSERT_OK(database_->Execute("BEGIN IMMEDIATE")); }

  bool Serves(const std::string& name) {
    return client_->CallRaw("/grpc.health.v1.Health/Check",
                            absl::StrCat("\x0a", std::string(1, name.size()),
                                         name)) == "\x08\x01";
  }
  // Whether there comes a time at which it is not ready, but alive.
  bool AwaitUnreadyButAlive() {
    const auto deadline = DeadlineAfter(absl::Seconds(30));
    while (std::chrono::steady_clock::now() < deadline) {
      if (!Serves("readiness") && Serves("liveness")) return true;
      Notification().WaitForNotificationWithTimeout(absl::Milliseconds(10));
    }
    return false;
  }

  std::unique_ptr<Daemon> daemon_;
  std::unique_ptr<TestClient> client_;
  std::unique_ptr<TestWorker> worker_;
  std::unique_ptr<SqliteDatabase> database_;
};

TEST_F(HangingStoreTest, TakesReadinessAndNotLiveness) {
  Start(absl::Milliseconds(20));
  Hang();
  std::atomic<bool> is_done{false};
  std::thread submits([&] {
    v1::Job job;
    while (!is_done) client_->Submit(MakeLegalJob(1, 1), &job).ok();
  });
  EXPECT_TRUE(AwaitUnreadyButAlive());
  EXPECT_THAT(HttpGet(daemon_->http_address(), "/healthz"), HasSubstr("ok\n"));
  is_done = true;
  submits.join();
}

TEST_F(HangingStoreTest, AShutdownIsNotReadyBeforeItIsDone) {
  Start(absl::Minutes(1));
  Hang();
  std::thread shutdown([&] { EXPECT_OK(daemon_->Shutdown()); });
  EXPECT_TRUE(AwaitUnreadyButAlive());
  shutdown.join();
}

TEST(DaemonTest, TellsAnAddressUnderWhichOthersFindIt) {
  Daemon::Options options = MakeOptions();
  options.http_address = "0.0.0.0:0";
  ASSERT_OK_AND_ASSIGN(auto daemon, Daemon::Start(options));
  TestClient client(daemon->grpc_address());
  v1::GetClusterInfoResponse info;
  ASSERT_TRUE(client
                  .Call([&](grpc::ClientContext* context) {
                    return client.cluster().GetClusterInfo(
                        context, v1::GetClusterInfoRequest(), &info);
                  })
                  .ok());
  EXPECT_THAT(info.http_address(),
              AllOf(Not(StartsWith("0.0.0.0")), HasSubstr(":")));
}

TEST(DaemonTest, RefusesFoldersItCannotWriteTo) {
  Daemon::Options options = MakeOptions();
  options.artifacts_dir = "/proc/self";  // there, and nobody may write to it
  EXPECT_THAT(Daemon::Start(options),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("--artifacts_dir=/proc/self"),
                             HasSubstr("as uid "))));
}

TEST(DaemonTest, RefusesOptionsThatMakeNoSense) {
  Daemon::Options options = MakeOptions();
  options.heartbeat_timeout = absl::Milliseconds(600);
  EXPECT_THAT(Daemon::Start(options),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("heartbeat_timeout=600ms")));
  options = MakeOptions();
  options.heartbeat_interval = absl::ZeroDuration();
  EXPECT_THAT(Daemon::Start(options),
              StatusIs(absl::StatusCode::kInvalidArgument));
  options = MakeOptions();
  options.state_dir = "/proc/no/such";
  EXPECT_THAT(Daemon::Start(options),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("--state_dir=/proc/no/such")));
  for (const char* address :
       {"127.0.0.1:http", "7071", "127.0.0.1:65536", ":7071"}) {
    options = MakeOptions();
    options.http_address = address;
    EXPECT_THAT(Daemon::Start(options),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr(absl::StrCat("--http_address=", address))));
  }
  options = MakeOptions();
  options.listen_address = "";
  EXPECT_THAT(Daemon::Start(options),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("--listen_address=")));
}

TEST(DaemonTest, RefusesATakenHttpPort) {
  Daemon::Options options = MakeOptions();
  ASSERT_OK_AND_ASSIGN(auto first, Daemon::Start(options));
  options.state_dir += "2";
  options.http_address = first->http_address();
  EXPECT_THAT(Daemon::Start(options),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr(first->http_address())));
}

}  // namespace
}  // namespace weft::coordinator

// `worker --devices=N`: one process that keeps the workers of a host, and the
// health service that probes ask.
#include <signal.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/cluster/await.h"
#include "tests/cluster/cluster.h"
#include "tests/cluster/files.h"
#include "tests/cluster/jobs.h"
#include "tests/cluster/subprocess.h"
#include "worker/service/health_probe.h"

namespace weft::testing {
namespace {

using service::AwaitProbe;
using service::Probe;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Optional;
using ::testing::SizeIs;
using ::testing::StartsWith;

constexpr absl::Duration kLong = absl::Seconds(60);

// A worker, or a supervisor of some, that serves health on a free port.
struct Host {
  std::unique_ptr<Subprocess> process;
  std::string health;
  std::string http;  // of a worker; of one of a supervisor's
};

// What follows ` name=` in a line of a log; empty when it is not there yet.
std::string Logged(const Host& host, absl::string_view name) {
  const std::string log = ReadFile(host.process->log());
  const std::string key = absl::StrCat(" ", name, "=");
  const size_t at = log.find(key);
  if (at == std::string::npos) return "";
  const absl::string_view rest = absl::string_view(log).substr(at + key.size());
  const size_t end = rest.find('\n');
  return end == absl::string_view::npos ? "" : std::string(rest.substr(0, end));
}

Host StartHost(std::vector<std::string> flags) {
  static int started = 0;
  flags.insert(flags.begin(), "worker/worker");
  flags.push_back("--health_address=127.0.0.1:0");
  auto process = Subprocess::Start(
      flags, absl::StrCat(TestFolder(), "/host-", started++, ".log"));
  EXPECT_OK(process.status());
  if (!process.ok()) return {};
  Host host{*std::move(process), "", ""};
  Await(
      [&] {
        host.health = Logged(host, "health");
        host.http = Logged(host, "http");
        return !host.health.empty() && !host.http.empty();
      },
      kLong);
  EXPECT_NE(host.health, "") << ReadFile(host.process->log());
  return host;
}

// The worker's own page as JSON.
nlohmann::json Statusz(const Host& host) {
  const std::string answer = HttpGet(host.http, "/statusz");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200"));
  const size_t body = answer.find("\r\n\r\n");
  return nlohmann::json::parse(
      body == std::string::npos ? "" : answer.substr(body), nullptr,
      /*allow_exceptions=*/false);
}

v1::TrainingJob Job(const std::string& data) {
  ClusterJob options;
  options.data = data;
  options.world = 2;
  return MakeJob(options);
}

// The workers by id.
std::map<std::string, v1::Worker> WorkersById(Cluster& cluster) {
  std::map<std::string, v1::Worker> by_id;
  const auto workers = cluster.Workers();
  EXPECT_OK(workers.status());
  if (!workers.ok()) return by_id;
  for (const v1::Worker& worker : *workers) by_id[worker.id()] = worker;
  return by_id;
}

TEST(SupervisorProcessTest, RunsJobsAndReplacesADeadChild) {
  ClusterOptions none;
  none.workers = 0;
  ASSERT_OK_AND_ASSIGN(const auto cluster, Cluster::Start(none));
  ASSERT_OK_AND_ASSIGN(const std::string data,
                       WriteDataset("text", 20000, kVocab, false));
  const Host host =
      StartHost({"--coordinator=" + cluster->address(), "--devices=2",
                 "--worker_id=pod", "--http_address=0.0.0.0:0"});
  ASSERT_EQ(AwaitProbe(host.health, "readiness", "SERVING"), "SERVING");
  auto before = WorkersById(*cluster);
  ASSERT_THAT(before, SizeIs(2));
  // An address of this machine, not all of them: others are to find it.
  EXPECT_THAT(before["pod-0"].http_address(),
              AllOf(Not(StartsWith("0.0.0.0")), HasSubstr(":")));
  ASSERT_OK_AND_ASSIGN(const JobResult first, cluster->Run(Job(data)));
  EXPECT_EQ(first.job.state(), v1::JOB_STATE_SUCCEEDED) << first.job.message();

  kill(static_cast<pid_t>(before["pod-1"].pid()), SIGKILL);
  ASSERT_TRUE(Await(
      [&] {
        auto now = WorkersById(*cluster);
        return now["pod-1"].pid() != before["pod-1"].pid() &&
               IsIdle(now["pod-1"]);
      },
      kLong));
  auto after = WorkersById(*cluster);
  ASSERT_THAT(after, SizeIs(2));
  EXPECT_NE(after["pod-1"].incarnation(), before["pod-1"].incarnation());
  EXPECT_EQ(after["pod-0"].incarnation(), before["pod-0"].incarnation());
  EXPECT_EQ(AwaitProbe(host.health, "readiness", "SERVING"), "SERVING");
  ASSERT_OK_AND_ASSIGN(const JobResult second, cluster->Run(Job(data)));
  EXPECT_EQ(second.job.state(), v1::JOB_STATE_SUCCEEDED)
      << second.job.message();

  host.process->Signal(SIGTERM);
  EXPECT_THAT(host.process->Wait(kLong), Optional(0))
      << ReadFile(host.process->log());
}

TEST(SupervisorProcessTest, WithoutACoordinatorItIsAliveButNotReady) {
  for (const char* devices : {"--devices=2", "--devices="}) {
    // Nobody listens there.
    const Host host = StartHost({"--coordinator=127.0.0.1:1", devices});
    EXPECT_EQ(AwaitProbe(host.health, "startup", "SERVING"), "SERVING");
    EXPECT_EQ(Probe(host.health, "liveness"), "SERVING");
    EXPECT_EQ(Probe(host.health, "readiness"), "NOT_SERVING");
    EXPECT_THAT(HttpGet(host.http, "/healthz"), StartsWith("HTTP/1.1 200"));
    EXPECT_THAT(HttpGet(host.http, "/readyz"),
                AllOf(StartsWith("HTTP/1.1 503"), HasSubstr("not attached")));
    EXPECT_EQ(Statusz(host)["state"], "starting");
    host.process->Signal(SIGTERM);
    EXPECT_THAT(host.process->Wait(kLong), Optional(0));
  }
}

TEST(SupervisorProcessTest, ReadinessFollowsTheCoordinator) {
  ClusterOptions none;
  none.workers = 0;
  ASSERT_OK_AND_ASSIGN(auto cluster, Cluster::Start(none));
  const Host host = StartHost({"--coordinator=" + cluster->address()});
  EXPECT_EQ(AwaitProbe(host.health, "readiness", "SERVING"), "SERVING");
  EXPECT_EQ(Probe(cluster->address(), "readiness"), "SERVING");
  EXPECT_THAT(HttpGet(host.http, "/readyz"), StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(Statusz(host)["state"], "idle");
  const auto workers = WorkersById(*cluster);
  EXPECT_EQ(workers.count(Statusz(host)["worker_id"].get<std::string>()), 1);
  cluster.reset();
  EXPECT_EQ(AwaitProbe(host.health, "readiness", "NOT_SERVING"), "NOT_SERVING");
  EXPECT_THAT(HttpGet(host.http, "/readyz"), StartsWith("HTTP/1.1 503"));
  EXPECT_EQ(Statusz(host)["state"], "detached");
  EXPECT_EQ(Probe(host.health, "liveness"), "SERVING");
}

}  // namespace
}  // namespace weft::testing

// The binary as a process.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "coordinator/service/test_client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "schedule/rules/test_jobs.h"

namespace weft::coordinator {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string TempPath(const std::string& name) {
  return absl::StrCat(std::getenv("TEST_TMPDIR"), "/", name);
}

std::string ReadFile(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// Starts the coordinator with its output in files; returns its pid.
pid_t Start(std::vector<std::string> args) {
  args.insert(args.begin(), "coordinator/coordinator");
  const pid_t pid = fork();
  if (pid != 0) return pid;
  const int out =
      open(TempPath("out").c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600);
  const int err =
      open(TempPath("err").c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600);
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  std::vector<char*> argv;
  for (std::string& arg : args) argv.push_back(arg.data());
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  _exit(127);
}

void AwaitFile(const std::string& path) {
  const auto deadline = DeadlineAfter(absl::Seconds(30));
  while (ReadFile(path).empty() &&
         std::chrono::steady_clock::now() < deadline) {
    Notification().WaitForNotificationWithTimeout(absl::Milliseconds(10));
  }
}

// Exit status of a process that ends by itself, else -1.
int Wait(pid_t pid) {
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(MainTest, HelpGoesToStdoutAndSucceeds) {
  EXPECT_EQ(Wait(Start({"--help"})), 0);
  EXPECT_THAT(ReadFile(TempPath("out")), HasSubstr("--listen_address"));
  EXPECT_THAT(ReadFile(TempPath("err")), IsEmpty());
}

TEST(MainTest, AWrongCommandLineIsTwo) {
  EXPECT_EQ(Wait(Start({"--bogus=1"})), 2);
  EXPECT_THAT(ReadFile(TempPath("err")), HasSubstr("unknown flag --bogus"));
  EXPECT_EQ(Wait(Start({"--heartbeat_timeout=1ms", "--state_dir", TempPath("s"),
                        "--artifacts_dir", TempPath("a")})),
            2);
}

TEST(MainTest, SigtermEndsItCleanly) {
  const std::string ports = TempPath("ports.json");
  const pid_t pid = Start(
      {"--listen_address=127.0.0.1:0", "--http_address=127.0.0.1:0",
       "--state_dir=" + TempPath("state"),
       "--artifacts_dir=" + TempPath("artifacts"), "--port_file=" + ports});
  AwaitFile(ports);
  EXPECT_THAT(ReadFile(ports), HasSubstr(absl::StrCat("\"pid\": ", pid)));
  kill(pid, SIGTERM);
  EXPECT_EQ(Wait(pid), 0) << ReadFile(TempPath("err"));
}

// Opening a FIFO that nobody reads hangs, as a dead network volume does.
TEST(MainTest, SigtermEndsItThoughTheVolumeOfArtifactsHangs) {
  const std::string ports = TempPath("hanging-ports.json");
  const pid_t pid =
      Start({"--listen_address=127.0.0.1:0",
             "--http_address=", "--state_dir=" + TempPath("hanging-state"),
             "--artifacts_dir=" + TempPath("hanging"), "--port_file=" + ports});
  AwaitFile(ports);
  const std::string address =
      nlohmann::json::parse(ReadFile(ports))["grpc"].get<std::string>();
  TestClient client(address);
  TestWorker worker(address, "w-0");
  worker.Read();
  v1::Job job;
  ASSERT_TRUE(client.Submit(schedule::MakeLegalJob(1, 1), &job).ok());
  ASSERT_EQ(mkdir(job.artifacts().c_str(), 0700), 0);
  ASSERT_EQ(mkfifo((job.artifacts() + "/steps.jsonl").c_str(), 0600), 0);
  worker.GetReady();
  worker.SayPrepared();
  EXPECT_TRUE(worker.Read().has_start());
  worker.SayStep(1, 2.5);
  worker.SayFinished(0, 1);
  while (client.Get(job.id()).step() < 1) {
    Notification().WaitForNotificationWithTimeout(absl::Milliseconds(10));
  }
  kill(pid, SIGTERM);
  EXPECT_EQ(Wait(pid), 3);
  EXPECT_THAT(ReadFile(TempPath("err")),
              HasSubstr("1 records of jobs could not be written"));
}

}  // namespace
}  // namespace weft::coordinator

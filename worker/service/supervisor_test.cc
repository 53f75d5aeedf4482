#include "worker/service/supervisor.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::service {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

// Runs a supervisor in a process of its own, over children that are shell
// scripts. A script appends to files in the test's folder, which is its $1.
class SupervisorTest : public ::testing::Test {
 protected:
  SupervisorTest()
      : folder_(absl::StrCat(
            std::getenv("TEST_TMPDIR"), "/",
            ::testing::UnitTest::GetInstance()->current_test_info()->name())) {
    EXPECT_EQ(system(absl::StrCat("mkdir -p ", folder_).c_str()), 0);
    options_.backoff = {absl::Milliseconds(1), absl::Milliseconds(10)};
  }
  ~SupervisorTest() override {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
  }

  void Run(const std::vector<std::string>& scripts) {
    for (const std::string& script : scripts) {
      options_.commands.push_back(
          {"script", {"/bin/sh", "-c", script, "sh", folder_}});
    }
    pid_ = fork();
    if (pid_ != 0) return;
    Supervisor::BlockSignals();
    Supervisor supervisor(options_);
    _exit(supervisor.Run());
  }

  std::vector<std::string> Lines(const std::string& file) const {
    std::ifstream in(folder_ + "/" + file);
    std::vector<std::string> lines;
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
  }

  // The lines, once there are `n` of them.
  std::vector<std::string> AwaitLines(const std::string& file, size_t n) const {
    Await([&] { return Lines(file).size() >= n; });
    return Lines(file);
  }

  template <typename Condition>
  static bool Await(Condition holds) {
    const auto deadline = DeadlineAfter(absl::Seconds(30));
    while (!holds()) {
      if (std::chrono::steady_clock::now() >= deadline) return false;
      std::this_thread::yield();
    }
    return true;
  }

  static void Signal(const std::string& pid, int signal) {
    int number = 0;
    ASSERT_TRUE(absl::SimpleAtoi(pid, &number));
    kill(number, signal);
  }

  // The supervisor's exit code.
  int Wait() {
    int status = 0;
    waitpid(std::exchange(pid_, 0), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  int Terminate() {
    kill(pid_, SIGTERM);
    return Wait();
  }

  const std::string folder_;
  Supervisor::Options options_;
  pid_t pid_ = 0;
};

// Ends with 0 when asked to; says its pid in the file `name`.
std::string Obedient(const std::string& name) {
  return absl::StrCat("trap 'exit 0' TERM; echo $$ >>$1/", name,
                      "; while :; do sleep 0.1; done");
}

TEST_F(SupervisorTest, StartsADeadChildAgainAndLeavesTheOthersAlone) {
  Run({Obedient("a"), Obedient("b")});
  ASSERT_THAT(AwaitLines("b", 1), SizeIs(1));
  const std::vector<std::string> first = AwaitLines("a", 1);
  ASSERT_THAT(first, SizeIs(1));
  Signal(first[0], SIGKILL);
  const std::vector<std::string> both = AwaitLines("a", 2);
  ASSERT_THAT(both, SizeIs(2));
  EXPECT_NE(both[0], both[1]);
  EXPECT_EQ(Terminate(), 0);
  EXPECT_THAT(Lines("a"), SizeIs(2));
  EXPECT_THAT(Lines("b"), SizeIs(1));
}

TEST_F(SupervisorTest, WaitsBeforeItStartsAChildAgain) {
  options_.backoff = {absl::Hours(1), absl::Hours(1)};
  Run({Obedient("a"), "echo >>$1/dead"});
  ASSERT_THAT(AwaitLines("dead", 1), SizeIs(1));
  ASSERT_THAT(AwaitLines("a", 1), SizeIs(1));
  EXPECT_EQ(Terminate(), 0);
  EXPECT_THAT(Lines("dead"), SizeIs(1));
}

TEST_F(SupervisorTest, PassesTheSignalToAllChildren) {
  const auto child = [](const char* name) {
    return absl::StrCat("trap 'echo ended >>$1/", name, "; exit 0' TERM; ",
                        "echo began >>$1/", name,
                        "; while :; do sleep 0.1; done");
  };
  Run({child("a"), child("b")});
  ASSERT_THAT(AwaitLines("a", 1), SizeIs(1));
  ASSERT_THAT(AwaitLines("b", 1), SizeIs(1));
  EXPECT_EQ(Terminate(), 0);
  EXPECT_THAT(Lines("a"), ElementsAre("began", "ended"));
  EXPECT_THAT(Lines("b"), ElementsAre("began", "ended"));
}

TEST_F(SupervisorTest, KillsAChildThatDoesNotEndWithinTheGrace) {
  options_.grace = absl::Milliseconds(50);
  Run({"trap '' TERM; echo $$ >>$1/a; while :; do sleep 0.1; done"});
  const std::vector<std::string> child = AwaitLines("a", 1);
  ASSERT_THAT(child, SizeIs(1));
  EXPECT_EQ(Terminate(), Supervisor::kUnclean);
  EXPECT_NE(access(absl::StrCat("/proc/", child[0]).c_str(), F_OK), 0);
}

TEST_F(SupervisorTest, AChildThatEndsUncleanlyWhenAskedIsTold) {
  Run({Obedient("a"),
       "trap 'exit 1' TERM; echo >>$1/b; while :; do sleep 0.1; done"});
  ASSERT_THAT(AwaitLines("a", 1), SizeIs(1));
  ASSERT_THAT(AwaitLines("b", 1), SizeIs(1));
  EXPECT_EQ(Terminate(), Supervisor::kUnclean);
}

TEST_F(SupervisorTest, WrongFlagsEndThemAll) {
  Run({Obedient("a"), "exit 2"});
  EXPECT_EQ(Wait(), Supervisor::kWrongFlags);
  EXPECT_LE(Lines("a").size(), 1);
}

TEST_F(SupervisorTest, ReapsProcessesThatLostTheirParent) {
  Run({"(sh -c 'echo $$ >>$0/orphan' $1 &); " + Obedient("a")});
  const std::vector<std::string> orphan = AwaitLines("orphan", 1);
  ASSERT_THAT(orphan, SizeIs(1));
  // A zombie would stay.
  EXPECT_TRUE(Await([&] {
    return access(absl::StrCat("/proc/", orphan[0]).c_str(), F_OK) != 0;
  }));
  EXPECT_EQ(Terminate(), 0);
}

TEST_F(SupervisorTest, KillsAndReplacesAChildThatSaysNothing) {
  options_.patience = absl::Milliseconds(200);
  Run({Obedient("silent")});
  EXPECT_THAT(AwaitLines("silent", 2).size(), ::testing::Ge(2));
  EXPECT_EQ(Terminate(), 0);
}

// What Report() writes for {true, true} and {true, false}.
TEST_F(SupervisorTest, IsReadyWhenAllChildrenAre) {
  int turns[2];
  ASSERT_EQ(pipe(turns), 0);
  options_.on_turn = [&, last = std::string()](const Health& health) mutable {
    const std::string now = !health.has_started ? "-"
                            : health.is_ready   ? "ready "
                                                : "started ";
    if (now != last && now != "-")
      (void)!write(turns[1], now.data(), now.size());
    last = now;
  };
  const std::string tail = "; while :; do sleep 0.1; done";
  Run({"trap 'exit 0' TERM; printf '\\003' >&3" + tail,
       "trap 'exit 0' TERM; trap \"printf '\\003' >&3\" USR1; echo $$ >>$1/b; "
       "printf '\\001' >&3" +
           tail});
  close(turns[1]);
  char said[16] = "";
  ASSERT_EQ(read(turns[0], said, 8), 8);
  EXPECT_EQ(absl::string_view(said, 8), "started ");
  const std::vector<std::string> late = AwaitLines("b", 1);
  ASSERT_THAT(late, SizeIs(1));
  Signal(late[0], SIGUSR1);
  ASSERT_EQ(read(turns[0], said, 6), 6);
  EXPECT_EQ(absl::string_view(said, 6), "ready ");
  EXPECT_EQ(Terminate(), 0);
  close(turns[0]);
}

}  // namespace
}  // namespace weft::service

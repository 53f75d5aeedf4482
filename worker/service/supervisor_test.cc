#include "worker/service/supervisor.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
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
      Notification().WaitForNotificationWithTimeout(absl::Milliseconds(10));
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
  // Whether the last of them ends by itself depends on when it is asked.
  Terminate();
}

// The supervisor's word on its children, each time it changes.
class SupervisorHealthTest : public SupervisorTest {
 protected:
  SupervisorHealthTest() {
    EXPECT_EQ(pipe(turns_), 0);
    options_.on_turn = [write_end = turns_[1],
                        last = std::string()](const Health& health) mutable {
      const std::string now = !health.has_started ? "waits "
                              : health.is_ready   ? "ready "
                                                  : "start ";
      if (now != last) (void)!write(write_end, now.data(), now.size());
      last = now;
    };
  }
  ~SupervisorHealthTest() override { close(turns_[0]); }

  // Of children that run `scripts`.
  void Watch(const std::vector<std::string>& scripts) {
    Run(scripts);
    close(turns_[1]);
  }
  // Empty after the supervisor's end.
  std::string NextWord() {
    char word[6] = "";
    return read(turns_[0], word, 6) == 6 ? std::string(word, 5) : "";
  }

 private:
  int turns_[2];
};

// Report(true) writes a byte of 1, Report(false) one of 0.
TEST_F(SupervisorHealthTest, IsReadyWhenAllChildrenAre) {
  const std::string tail = "; while :; do sleep 0.1; done";
  Watch({"trap 'exit 0' TERM; printf '\\001' >&3" + tail,
         "trap 'exit 0' TERM; trap \"printf '\\001' >&3\" USR1; echo $$ "
         ">>$1/b; printf '\\000' >&3" +
             tail});
  EXPECT_EQ(NextWord(), "start");
  const std::vector<std::string> late = AwaitLines("b", 1);
  ASSERT_THAT(late, SizeIs(1));
  Signal(late[0], SIGUSR1);
  EXPECT_EQ(NextWord(), "ready");
  EXPECT_EQ(Terminate(), 0);
}

TEST_F(SupervisorHealthTest, HasStartedThoughAChildNeverComesUp) {
  Watch({"trap 'exit 0' TERM; printf '\\001' >&3; while :; do sleep 0.1; done",
         "echo >>$1/dead; exit 1"});
  EXPECT_EQ(NextWord(), "start");
  EXPECT_THAT(AwaitLines("dead", 3).size(), ::testing::Ge(3));
  Terminate();
  EXPECT_EQ(NextWord(), "");  // it never was ready
}

}  // namespace
}  // namespace weft::service

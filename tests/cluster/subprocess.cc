#include "tests/cluster/subprocess.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tests/cluster/await.h"

namespace weft::testing {
namespace {

// In the child: becomes the program. Only calls that are safe after a fork.
[[noreturn]] void Exec(char* const* argv, int log, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);  // it died before the line above
  dup2(log, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  execv(argv[0], argv);
  _exit(127);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Subprocess>> Subprocess::Start(
    const std::vector<std::string>& command, const std::string& log) {
  std::vector<char*> argv;
  for (const std::string& word : command) {
    argv.push_back(const_cast<char*>(word.c_str()));
  }
  argv.push_back(nullptr);
  const int output =
      open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  const pid_t parent = getpid();
  const pid_t pid = output < 0 ? -1 : fork();
  if (pid == 0) Exec(argv.data(), output, parent);
  const int error = errno;
  if (output >= 0) close(output);
  if (pid < 0) {
    return absl::UnavailableError(absl::StrCat(
        "cannot start ", command[0], " > ", log, ": ", std::strerror(error)));
  }
  return absl::WrapUnique(new Subprocess(pid, log));
}

Subprocess::~Subprocess() {
  Signal(SIGKILL);
  Wait(absl::InfiniteDuration());
}

void Subprocess::Signal(int signal) {
  if (!exit_status_.has_value()) kill(pid_, signal);
}

std::optional<int> Subprocess::Wait(absl::Duration timeout) {
  Await(
      [&] {
        int status = 0;
        if (exit_status_.has_value()) return true;
        if (waitpid(pid_, &status, WNOHANG) != pid_) return false;
        exit_status_ =
            WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        return true;
      },
      timeout);
  return exit_status_;
}

}  // namespace weft::testing

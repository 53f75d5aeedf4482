#include "worker/service/supervisor.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <utility>

#include "base/clock.h"
#include "base/logging.h"

namespace weft::service {
namespace {

constexpr int kTurnMs = 100;

// Reports, one byte each.
constexpr char kNotReady = 0;
constexpr char kReady = 1;

absl::Duration Now() { return absl::Nanoseconds(RealClock().MonotonicNanos()); }

sigset_t Signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGCHLD);
  return signals;
}

// In the child: becomes the program. Only calls that are safe after a fork.
[[noreturn]] void Exec(char* const* argv, int reports, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(127);  // it died before the line above
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  if (reports == Supervisor::kReportFd) {
    fcntl(reports, F_SETFD, 0);
  } else {
    dup2(reports, Supervisor::kReportFd);
  }
  execv(argv[0], argv);
  _exit(127);
}

}  // namespace

void Supervisor::BlockSignals() {
  const sigset_t signals = Signals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGCHLD, SIG_DFL);  // else ends of children would not be told
}

void Supervisor::Report(bool is_ready) {
  const char report = is_ready ? kReady : kNotReady;
  // A pipe that is full has older reports for a supervisor that stands still.
  (void)!write(kReportFd, &report, 1);
}

Supervisor::Supervisor(Options options) : options_(std::move(options)) {
  std::random_device random;
  for (const Command& command : options_.commands) {
    children_.emplace_back(command, options_.backoff, random());
  }
}

int Supervisor::Run() {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  const sigset_t mask = Signals();
  const int signals = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
  for (Child& child : children_) Start(child);
  while (!IsOver()) {
    WaitForEvents(signals);
    ReadSignals(signals);
    for (Child& child : children_) ReadReports(child);
    Reap();
    if (is_stopping_ && !has_killed_ && Now() >= stop_by_) {
      LOG(ERROR) << "children did not end in time grace=" << options_.grace;
      has_killed_ = true;
      SignalAll(SIGKILL);
    }
    if (!is_stopping_) {
      KillSilent();
      StartDue();
    }
    if (options_.on_turn != nullptr) options_.on_turn(Common());
  }
  close(signals);
  return exit_code_;
}

void Supervisor::Start(Child& child) {
  std::vector<char*> argv;
  for (std::string& word : child.command.arguments) argv.push_back(word.data());
  argv.push_back(nullptr);
  child.is_ready = false;
  child.started_at = child.heard_at = Now();
  int pipe[2] = {-1, -1};
  const pid_t parent = getpid();
  const pid_t pid = pipe2(pipe, O_CLOEXEC | O_NONBLOCK) == 0 ? fork() : -1;
  if (pid == 0) Exec(argv.data(), pipe[1], parent);
  const int error = errno;
  if (pipe[1] >= 0) close(pipe[1]);
  if (pid > 0) {
    child.pid = pid;
    child.was_started = true;
    child.reports = pipe[0];
    LOG(INFO) << "child=" << child.command.name << " started pid=" << pid;
    return;
  }
  if (pipe[0] >= 0) close(pipe[0]);
  child.restart_at = Now() + child.backoff.Next();
  LOG(ERROR) << "child=" << child.command.name
             << " cannot be started: " << std::strerror(error);
}

void Supervisor::WaitForEvents(int signals) {
  std::vector<pollfd> events = {{signals, POLLIN, 0}};
  for (const Child& child : children_) {
    if (child.reports >= 0) events.push_back({child.reports, POLLIN, 0});
  }
  poll(events.data(), events.size(), kTurnMs);
}

void Supervisor::ReadSignals(int signals) {
  signalfd_siginfo info;
  while (read(signals, &info, sizeof(info)) == sizeof(info)) {
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal == SIGCHLD) continue;  // Reap() looks anyway
    LOG(INFO) << "signal=" << signal << " shutting down";
    Stop();
    SignalAll(signal);
  }
}

void Supervisor::ReadReports(Child& child) {
  char reports[64];
  ssize_t n = 0;
  while (child.reports >= 0 &&
         (n = read(child.reports, reports, sizeof(reports))) > 0) {
    child.is_ready = reports[n - 1] == kReady;
    child.heard_at = Now();
  }
  if (child.reports >= 0 && n == 0) {
    close(child.reports);
    child.reports = -1;
  }
}

void Supervisor::Reap() {
  int status = 0;
  pid_t pid = 0;
  while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
    const auto child =
        std::find_if(children_.begin(), children_.end(),
                     [pid](const Child& c) { return c.pid == pid; });
    if (child != children_.end()) OnEnd(*child, status);
  }
}

void Supervisor::OnEnd(Child& child, int wait_status) {
  const int code = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status)
                                          : 128 + WTERMSIG(wait_status);
  LOG(INFO) << "child=" << child.command.name << " ended code=" << code;
  child.pid = 0;
  child.is_ready = false;
  if (child.reports >= 0) close(child.reports);
  child.reports = -1;
  if (is_stopping_) {
    if (code != 0 && exit_code_ == 0) exit_code_ = kUnclean;
    return;
  }
  if (code == kWrongFlags) {
    exit_code_ = kWrongFlags;
    Stop();
    SignalAll(SIGTERM);
    return;
  }
  if (Now() - child.started_at >= options_.settled) child.backoff.Reset();
  const absl::Duration delay = child.backoff.Next();
  child.restart_at = Now() + delay;
  LOG(WARNING) << "child=" << child.command.name
               << " starts again in=" << delay;
}

void Supervisor::Stop() {
  if (is_stopping_) return;
  is_stopping_ = true;
  stop_by_ = Now() + options_.grace;
}

void Supervisor::KillSilent() {
  for (Child& child : children_) {
    if (child.pid == 0 || Now() - child.heard_at < options_.patience) continue;
    LOG(ERROR) << "child=" << child.command.name
               << " is killed: it said nothing for " << options_.patience;
    kill(child.pid, SIGKILL);
    child.heard_at = Now();
  }
}

void Supervisor::StartDue() {
  for (Child& child : children_) {
    if (child.pid == 0 && Now() >= child.restart_at) Start(child);
  }
}

void Supervisor::SignalAll(int signal) {
  for (const Child& child : children_) {
    if (child.pid != 0) kill(child.pid, signal);
  }
}

bool Supervisor::IsOver() const {
  return is_stopping_ &&
         std::all_of(children_.begin(), children_.end(),
                     [](const Child& child) { return child.pid == 0; });
}

Health Supervisor::Common() const {
  Health common{true, !is_stopping_};
  for (const Child& child : children_) {
    common.has_started &= child.was_started;
    common.is_ready &= child.is_ready;
  }
  return common;
}

}  // namespace weft::service

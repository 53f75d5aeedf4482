#include "worker/service/device_counter.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace weft::service {
namespace {

constexpr int kTurnMs = 100;

// Answers: a number, kAny, or kError, the status code, a blank and a message.
constexpr char kAny[] = "any";
constexpr char kError = '!';

std::string Encode(const absl::StatusOr<std::optional<int>>& count) {
  if (!count.ok()) {
    return absl::StrCat(std::string(1, kError),
                        static_cast<int>(count.status().code()), " ",
                        count.status().message());
  }
  return count->has_value() ? absl::StrCat(**count) : kAny;
}

absl::StatusOr<std::optional<int>> Decode(absl::string_view answer) {
  int number = 0;
  if (answer == kAny) return std::optional<int>();
  if (absl::SimpleAtoi(answer, &number)) return std::optional<int>(number);
  const std::pair<absl::string_view, absl::string_view> error =
      absl::StrSplit(answer, absl::MaxSplits(' ', 1));
  if (!answer.empty() && answer[0] == kError &&
      absl::SimpleAtoi(error.first.substr(1), &number)) {
    return absl::Status(static_cast<absl::StatusCode>(number), error.second);
  }
  return absl::InternalError(
      "the process that counts devices ended without an answer");
}

// Whether SIGTERM or SIGINT has come.
bool IsToldToEnd(int signals) {
  signalfd_siginfo info;
  return read(signals, &info, sizeof(info)) == sizeof(info);
}

}  // namespace

DeviceCounter::DeviceCounter(const Backend& backend) {
  int pipe[2] = {-1, -1};
  if (pipe2(pipe, O_CLOEXEC) != 0) return;
  pid_ = fork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const std::string answer = Encode(backend.CountDevices());
    _exit(write(pipe[1], answer.data(), answer.size()) < 0 ? 1 : 0);
  }
  close(pipe[1]);
  answer_ = pipe[0];
}

DeviceCounter::~DeviceCounter() {
  if (answer_ >= 0) close(answer_);
  if (pid_ > 0) kill(pid_, SIGKILL);
}

absl::StatusOr<std::optional<int>> DeviceCounter::Wait(
    const std::function<void()>& on_turn) {
  if (pid_ < 0) {
    return absl::ResourceExhaustedError(
        "the system has no process or pipe left to count devices with");
  }
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  const int signals = signalfd(-1, &ends, SFD_CLOEXEC | SFD_NONBLOCK);
  std::string answer;
  absl::StatusOr<std::optional<int>> result =
      absl::CancelledError("told to end before the devices were counted");
  while (!IsToldToEnd(signals)) {
    on_turn();
    pollfd events[] = {{answer_, POLLIN, 0}, {signals, POLLIN, 0}};
    poll(events, 2, kTurnMs);
    if (events[0].revents == 0) continue;
    char text[256];
    const ssize_t n = read(answer_, text, sizeof(text));
    if (n > 0) {
      answer.append(text, n);
    } else if (n == 0 || errno != EINTR) {
      pid_ = -1;  // it ends by itself
      result = Decode(answer);
      break;
    }
  }
  close(signals);
  return result;
}

}  // namespace weft::service

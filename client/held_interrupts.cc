#include "client/held_interrupts.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>

namespace weft::client {

HeldInterrupts::HeldInterrupts() {
  sigset_t held;
  sigemptyset(&held);
  for (int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&held, signal);
  signal_fd_ = signalfd(-1, &held, SFD_CLOEXEC);
  // Without a way to learn of them, signals are not held.
  if (signal_fd_ < 0) sigemptyset(&held);
  pthread_sigmask(SIG_BLOCK, &held, &old_mask_);
}

HeldInterrupts::~HeldInterrupts() {
  if (signal_fd_ >= 0) close(signal_fd_);
  pthread_sigmask(SIG_SETMASK, &old_mask_, nullptr);
}

absl::Status HeldInterrupts::AwaitInput(int fd) const {
  struct pollfd either[] = {{fd, POLLIN, 0}, {signal_fd_, POLLIN, 0}};
  while (poll(either, 2, -1) < 0) {
    if (errno != EINTR) return absl::ErrnoToStatus(errno, "waiting for input");
  }
  if (either[1].revents != 0) return absl::CancelledError("interrupted");
  return absl::OkStatus();
}

}  // namespace weft::client

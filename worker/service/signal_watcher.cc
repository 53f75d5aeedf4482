#include "worker/service/signal_watcher.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/logging.h"

namespace weft::service {
namespace {

sigset_t Signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  return signals;
}

}  // namespace

void SignalWatcher::BlockSignals() {
  const sigset_t signals = Signals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

SignalWatcher::SignalWatcher(absl::Duration grace,
                             std::function<void()> on_terminate)
    : grace_(grace),
      on_terminate_(std::move(on_terminate)),
      thread_([this] { Watch(); }) {}

SignalWatcher::~SignalWatcher() {
  is_over_ = true;
  pthread_kill(thread_.native_handle(), SIGTERM);
  thread_.join();
}

void SignalWatcher::Watch() {
  const sigset_t signals = Signals();
  int signal = 0;
  while (sigwait(&signals, &signal) != 0) {
  }
  if (is_over_) return;
  LOG(INFO) << "signal=" << signal << " shutting down";
  on_terminate_();
  const timespec grace = absl::ToTimespec(grace_);
  while (!is_over_) {
    const int next = sigtimedwait(&signals, nullptr, &grace);
    if (next < 0 && errno == EINTR) continue;
    if (is_over_) return;
    LOG(ERROR) << (next < 0 ? "could not end in time grace="
                            : "asked to end twice grace=")
               << grace_;
    _exit(3);
  }
}

}  // namespace weft::service

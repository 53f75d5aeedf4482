#include "worker/service/signal_watcher.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
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
                             std::function<void()> on_terminate,
                             absl::Duration together)
    : grace_(grace),
      on_terminate_(std::move(on_terminate)),
      together_(together),
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
  const auto first = std::chrono::steady_clock::now();
  on_terminate_();
  while (!is_over_) {
    const absl::Duration passed =
        absl::FromChrono(std::chrono::steady_clock::now() - first);
    const timespec left =
        absl::ToTimespec(std::max(grace_ - passed, absl::ZeroDuration()));
    const int next = sigtimedwait(&signals, nullptr, &left);
    if (is_over_) return;
    if (next < 0 && errno == EINTR) continue;
    if (next > 0 && absl::FromChrono(std::chrono::steady_clock::now() - first) <
                        together_) {
      continue;
    }
    LOG(ERROR) << (next < 0 ? "could not end in time grace="
                            : "asked to end twice grace=")
               << grace_;
    _exit(3);
  }
}

}  // namespace weft::service

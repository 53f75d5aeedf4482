#include "base/ticker.h"

#include <utility>

namespace weft {

Ticker::Ticker(absl::Duration period, std::function<void()> call)
    : thread_([this, period, call = std::move(call)] {
        while (!StopsWithin(period)) call();
      }) {}

Ticker::~Ticker() {
  {
    MutexLock lock(&mu_);
    stop_ = true;
  }
  changed_.SignalAll();
  thread_.join();
}

bool Ticker::StopsWithin(absl::Duration period) {
  const auto deadline = DeadlineAfter(period);
  MutexLock lock(&mu_);
  while (!stop_) {
    if (!changed_.WaitUntil(&mu_, deadline)) break;
  }
  return stop_;
}

}  // namespace weft

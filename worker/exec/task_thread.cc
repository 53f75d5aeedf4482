#include "worker/exec/task_thread.h"

#include <utility>

namespace weft::exec {

TaskThread::TaskThread(std::function<absl::Status()> task)
    : task_(std::move(task)), thread_([this] { Run(); }) {}

TaskThread::~TaskThread() {
  Await().IgnoreError();
  {
    MutexLock lock(&mu_);
    state_ = State::kEnding;
    changed_.SignalAll();
  }
  thread_.join();
}

void TaskThread::Begin() {
  MutexLock lock(&mu_);
  state_ = State::kBegun;
  changed_.SignalAll();
}

absl::Status TaskThread::Await() {
  MutexLock lock(&mu_);
  while (state_ == State::kBegun) changed_.Wait(&mu_);
  return outcome_;
}

void TaskThread::Run() {
  while (true) {
    {
      MutexLock lock(&mu_);
      while (state_ == State::kIdle) changed_.Wait(&mu_);
      if (state_ == State::kEnding) return;
    }
    absl::Status outcome = task_();
    MutexLock lock(&mu_);
    outcome_ = std::move(outcome);
    state_ = State::kIdle;
    changed_.SignalAll();
  }
}

}  // namespace weft::exec

#include "worker/service/outbox.h"

#include <utility>

namespace weft::service {

void Outbox::Send(worker::v1::AttachRequest message) {
  MutexLock lock(&mu_);
  if (!is_open_ || is_draining_) return;
  messages_.push_back(std::move(message));
  changed_.SignalAll();
}

bool Outbox::WaitForRoom(absl::Duration timeout) {
  const auto deadline = DeadlineAfter(timeout);
  MutexLock lock(&mu_);
  while (is_open_ && static_cast<int>(messages_.size()) >= capacity_) {
    if (!changed_.WaitUntil(&mu_, deadline)) return false;
  }
  return true;
}

Outbox::Event Outbox::Pop(std::chrono::steady_clock::time_point deadline,
                          worker::v1::AttachRequest* message) {
  MutexLock lock(&mu_);
  while (is_open_ && messages_.empty() && !is_draining_) {
    if (!changed_.WaitUntil(&mu_, deadline)) return Event::kTimeout;
  }
  if (messages_.empty()) return Event::kClosed;
  *message = std::move(messages_.front());
  messages_.pop_front();
  changed_.SignalAll();
  return Event::kMessage;
}

void Outbox::Open() {
  MutexLock lock(&mu_);
  messages_.clear();
  is_open_ = true;
  is_draining_ = false;
  changed_.SignalAll();
}

void Outbox::Close() {
  MutexLock lock(&mu_);
  messages_.clear();
  is_open_ = false;
  changed_.SignalAll();
}

void Outbox::Drain() {
  MutexLock lock(&mu_);
  is_draining_ = true;
  changed_.SignalAll();
}

}  // namespace weft::service

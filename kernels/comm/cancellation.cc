#include "kernels/comm/cancellation.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"

namespace weft::comm {

absl::StatusOr<std::unique_ptr<Cancellation>> Cancellation::Create() {
  const int fd = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (fd < 0) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the system gave no eventfd for a cancellation (errno ", errno, ")"));
  }
  return absl::WrapUnique(new Cancellation(fd));
}

Cancellation::~Cancellation() { ::close(event_fd_); }

void Cancellation::Cancel(absl::Status reason) {
  if (reason.ok()) reason = absl::CancelledError("cancelled");
  {
    MutexLock lock(&mu_);
    if (!reason_.ok()) return;
    reason_ = std::move(reason);
    cancelled_.store(true, std::memory_order_release);
  }
  const uint64_t one = 1;
  // Cannot fail: the counter is far from full and the descriptor is ours.
  [[maybe_unused]] const auto written = ::write(event_fd_, &one, sizeof(one));
  MutexLock lock(&listeners_mu_);
  for (CancellationListener* listener : listeners_) listener->OnCancelled();
}

absl::Status Cancellation::reason() const {
  MutexLock lock(&mu_);
  return reason_;
}

void Cancellation::AddListener(CancellationListener* listener) {
  MutexLock lock(&listeners_mu_);
  listeners_.push_back(listener);
  // When Cancel() has yet to take the lock, the listener is called twice.
  if (cancelled()) listener->OnCancelled();
}

void Cancellation::RemoveListener(CancellationListener* listener) {
  MutexLock lock(&listeners_mu_);
  listeners_.erase(std::remove(listeners_.begin(), listeners_.end(), listener),
                   listeners_.end());
}

}  // namespace weft::comm

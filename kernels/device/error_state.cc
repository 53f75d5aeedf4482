#include "kernels/device/error_state.h"

#include <algorithm>
#include <utility>

namespace weft::device {

absl::Status ErrorState::status() const {
  MutexLock lock(&mu_);
  return error_;
}

void ErrorState::Fail(absl::Status error) {
  MutexLock lock(&mu_);
  if (!error_.ok()) return;
  error_ = std::move(error);
  failed_.store(true, std::memory_order_release);
  for (FailureListener* listener : listeners_) listener->OnFailure();
}

void ErrorState::AddListener(FailureListener* listener) {
  MutexLock lock(&mu_);
  listeners_.push_back(listener);
}

void ErrorState::RemoveListener(FailureListener* listener) {
  MutexLock lock(&mu_);
  listeners_.erase(std::remove(listeners_.begin(), listeners_.end(), listener),
                   listeners_.end());
}

}  // namespace weft::device

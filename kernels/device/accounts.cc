#include "kernels/device/accounts.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace weft::device {

absl::Status MemoryAccounts::Take(int64_t bytes, MemoryCategory category) {
  MutexLock lock(&mu_);
  if (bytes > limit_bytes_ - total_) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "device memory: ", bytes, " bytes asked for ", Name(category), ", but ",
        total_, " of ", limit_bytes_, " bytes are in use (",
        by_category_[static_cast<int>(category)], " by ", Name(category), ")"));
  }
  by_category_[static_cast<int>(category)] += bytes;
  total_ += bytes;
  peak_ = std::max(peak_, total_);
  return absl::OkStatus();
}

void MemoryAccounts::Give(int64_t bytes, MemoryCategory category) {
  MutexLock lock(&mu_);
  by_category_[static_cast<int>(category)] -= bytes;
  total_ -= bytes;
}

int64_t MemoryAccounts::in_use(MemoryCategory category) const {
  MutexLock lock(&mu_);
  return by_category_[static_cast<int>(category)];
}

int64_t MemoryAccounts::in_use() const {
  MutexLock lock(&mu_);
  return total_;
}

int64_t MemoryAccounts::peak() const {
  MutexLock lock(&mu_);
  return peak_;
}

}  // namespace weft::device

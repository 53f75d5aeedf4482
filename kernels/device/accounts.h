// For backends: device memory by category, against a limit.
#ifndef WEFT_KERNELS_DEVICE_ACCOUNTS_H_
#define WEFT_KERNELS_DEVICE_ACCOUNTS_H_

#include <array>
#include <cstdint>
#include <limits>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "base/mutex.h"
#include "kernels/device/device.h"

namespace weft::device {

// Counts memory by category against a limit.
//
// Thread-safe.
class MemoryAccounts {
 public:
  // `limit_bytes` of 0 means none.
  explicit MemoryAccounts(int64_t limit_bytes)
      : limit_bytes_(limit_bytes > 0 ? limit_bytes
                                     : std::numeric_limits<int64_t>::max()) {}

  // RESOURCE_EXHAUSTED when `bytes` more do not fit.
  absl::Status Take(int64_t bytes, MemoryCategory category);
  void Give(int64_t bytes, MemoryCategory category);

  int64_t in_use(MemoryCategory category) const;
  int64_t in_use() const;
  int64_t peak() const;

 private:
  const int64_t limit_bytes_;
  mutable Mutex mu_;
  std::array<int64_t, kNumMemoryCategories> by_category_
      ABSL_GUARDED_BY(mu_) = {};
  int64_t total_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t peak_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace weft::device

#endif  // WEFT_KERNELS_DEVICE_ACCOUNTS_H_

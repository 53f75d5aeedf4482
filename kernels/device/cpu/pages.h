// Whole pages of zeroed memory, taken from and handed back to the system.
//
// Requires: a Linux kernel. Transparent huge pages are turned off for what is
// mapped here, so that residency is exact to the page.
// Thread-safe: functions without state.
#ifndef WEFT_KERNELS_DEVICE_CPU_PAGES_H_
#define WEFT_KERNELS_DEVICE_CPU_PAGES_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"

namespace weft::device::cpu {

// Maps zeroed pages that hold `bytes`, one page at least. RESOURCE_EXHAUSTED
// when the system has not so many. Requires: bytes >= 0.
absl::StatusOr<std::byte*> MapPages(int64_t bytes);

// Unmaps what MapPages(bytes) returned.
void UnmapPages(std::byte* data, int64_t bytes);

// Hands the pages that lie wholly inside [data, data + bytes) back to the
// system. They read as zero from now on.
absl::Status DropWholePages(void* data, int64_t bytes);

// Bytes of [data, data + bytes) that physical memory backs. `data` lies at the
// start of a page.
absl::StatusOr<int64_t> CountResidentBytes(const std::byte* data,
                                           int64_t bytes);

}  // namespace weft::device::cpu

#endif  // WEFT_KERNELS_DEVICE_CPU_PAGES_H_

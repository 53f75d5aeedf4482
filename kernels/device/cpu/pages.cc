#include "kernels/device/cpu/pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace weft::device::cpu {
namespace {

int64_t PageBytes() {
  static const int64_t bytes = ::sysconf(_SC_PAGESIZE);
  return bytes;
}

int64_t RoundUpToPages(int64_t bytes) {
  const int64_t page = PageBytes();
  return (std::max<int64_t>(bytes, 1) + page - 1) / page * page;
}

}  // namespace

absl::StatusOr<std::byte*> MapPages(int64_t bytes) {
  if (bytes > std::numeric_limits<int64_t>::max() - PageBytes()) {
    return absl::ResourceExhaustedError(
        absl::StrCat(bytes, " bytes are more than can be mapped"));
  }
  const int64_t mapped = RoundUpToPages(bytes);
  void* data = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the system did not map ", mapped, " bytes (errno ", errno,
                     "); other processes may hold the memory"));
  }
  // A kernel without huge pages refuses the advice: residency is exact anyway.
  (void)::madvise(data, mapped, MADV_NOHUGEPAGE);
  return static_cast<std::byte*>(data);
}

void UnmapPages(std::byte* data, int64_t bytes) {
  ::munmap(data, RoundUpToPages(bytes));
}

absl::Status DropWholePages(void* data, int64_t bytes) {
  const uintptr_t page = static_cast<uintptr_t>(PageBytes());
  const uintptr_t begin = reinterpret_cast<uintptr_t>(data);
  const uintptr_t first = (begin + page - 1) / page * page;
  const uintptr_t last = (begin + static_cast<uintptr_t>(bytes)) / page * page;
  if (bytes <= 0 || last <= first) return absl::OkStatus();
  void* pages = reinterpret_cast<void*>(first);
  if (::madvise(pages, last - first, MADV_DONTNEED) != 0) {
    return absl::InternalError(absl::StrCat(
        "madvise did not return ", last - first, " bytes (errno ", errno, ")"));
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> CountResidentBytes(const std::byte* data,
                                           int64_t bytes) {
  constexpr int64_t kPagesAtOnce = 4096;
  unsigned char resident[kPagesAtOnce];
  const int64_t page = PageBytes();
  int64_t count = 0;
  for (int64_t at = 0; at < bytes; at += kPagesAtOnce * page) {
    const int64_t length = std::min(bytes - at, kPagesAtOnce * page);
    void* from = const_cast<std::byte*>(data) + at;
    if (::mincore(from, length, resident) != 0) {
      return absl::InternalError(absl::StrCat("mincore failed for ", length,
                                              " bytes (errno ", errno, ")"));
    }
    for (int64_t i = 0; i * page < length; ++i) {
      if (resident[i] & 1) count += std::min(page, length - i * page);
    }
  }
  return count;
}

}  // namespace weft::device::cpu

// Addresses and copies of plain bytes, for backends.
#ifndef WEFT_KERNELS_COMM_BYTES_H_
#define WEFT_KERNELS_COMM_BYTES_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace weft::comm {

// The byte `offset` after the one at `base`.
inline const std::byte* At(const void* base, int64_t offset) {
  return static_cast<const std::byte*>(base) + offset;
}
inline std::byte* At(void* base, int64_t offset) {
  return static_cast<std::byte*>(base) + offset;
}

// Copies `bytes`. The ranges are the same one or do not overlap.
inline void CopyBytes(void* to, const void* from, int64_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
}

}  // namespace weft::comm

#endif  // WEFT_KERNELS_COMM_BYTES_H_

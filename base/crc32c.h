// CRC-32C (Castagnoli), the checksum of checkpoint files. It finds damage; it
// is no protection against intent.
//
//   uint32_t crc = Crc32c(head);
//   crc = Crc32cExtend(crc, body);  // == Crc32c(head + body)
#ifndef WEFT_BASE_CRC32C_H_
#define WEFT_BASE_CRC32C_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace weft {

// The checksum of what `crc` is the checksum of, followed by `data`.
// Uses the processor's instruction where there is one.
uint32_t Crc32cExtend(uint32_t crc, absl::string_view data);

// The checksum of `data`. That of nothing is 0.
inline uint32_t Crc32c(absl::string_view data) { return Crc32cExtend(0, data); }

namespace crc32c_internal {

// The same by table, on any processor.
uint32_t ExtendPortable(uint32_t crc, absl::string_view data);

}  // namespace crc32c_internal
}  // namespace weft

#endif  // WEFT_BASE_CRC32C_H_

#include "base/crc32c.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "absl/strings/string_view.h"

namespace weft {
namespace {

// The polynomial, bits reversed.
constexpr uint32_t kPolynomial = 0x82f63b78;

constexpr std::array<uint32_t, 256> MakeTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ ((crc & 1) ? kPolynomial : 0);
    }
    table[byte] = crc;
  }
  return table;
}

constexpr std::array<uint32_t, 256> kTable = MakeTable();

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t ExtendHardware(
    uint32_t crc, absl::string_view data) {
  uint64_t state = crc ^ 0xffffffff;
  const char* p = data.data();
  size_t left = data.size();
  for (; left >= 8; p += 8, left -= 8) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    state = __builtin_ia32_crc32di(state, word);
  }
  auto tail = static_cast<uint32_t>(state);
  for (; left > 0; ++p, --left) {
    tail = __builtin_ia32_crc32qi(tail, static_cast<unsigned char>(*p));
  }
  return tail ^ 0xffffffff;
}
#endif

}  // namespace

namespace crc32c_internal {

uint32_t ExtendPortable(uint32_t crc, absl::string_view data) {
  crc ^= 0xffffffff;
  for (char c : data) {
    crc = (crc >> 8) ^ kTable[(crc ^ static_cast<unsigned char>(c)) & 0xff];
  }
  return crc ^ 0xffffffff;
}

}  // namespace crc32c_internal

uint32_t Crc32cExtend(uint32_t crc, absl::string_view data) {
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2");
  if (has_instruction) return ExtendHardware(crc, data);
#endif
  return crc32c_internal::ExtendPortable(crc, data);
}

}  // namespace weft

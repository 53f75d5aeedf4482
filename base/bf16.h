// bfloat16: the upper half of an fp32 number.
#ifndef WEFT_BASE_BF16_H_
#define WEFT_BASE_BF16_H_

#include <cstdint>
#include <cstring>

namespace weft {

struct Bf16 {
  uint16_t bits;
};
static_assert(sizeof(Bf16) == 2, "");

// Exact.
inline float ToFloat(Bf16 x) {
  const uint32_t bits = static_cast<uint32_t>(x.bits) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}
// For code that is written once for both formats.
inline float ToFloat(float x) { return x; }

// The nearest bf16; of two, the one with an even last bit. What lies beyond the
// largest finite one becomes infinite; a NaN stays a NaN.
inline Bf16 ToBf16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  if (x != x) return {static_cast<uint16_t>((bits >> 16) | 0x40)};
  const uint32_t last = (bits >> 16) & 1;
  return {static_cast<uint16_t>((bits + 0x7FFF + last) >> 16)};
}

}  // namespace weft

#endif  // WEFT_BASE_BF16_H_

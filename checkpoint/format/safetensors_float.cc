#include "checkpoint/format/safetensors_float.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace weft::checkpoint {
namespace {

uint16_t Load16(const char* bytes) {
  uint16_t bits;
  std::memcpy(&bits, bytes, sizeof(bits));
  return bits;
}

float FromBf16(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}

// IEEE 754 binary16: a sign, 5 bits of exponent biased by 15, 10 of fraction.
float FromF16(uint16_t bits) {
  const float sign = (bits & 0x8000) != 0 ? -1.0f : 1.0f;
  const int exponent = bits >> 10 & 0x1f;
  const int fraction = bits & 0x3ff;
  if (exponent == 0x1f) {
    return fraction != 0 ? std::numeric_limits<float>::quiet_NaN()
                         : sign * std::numeric_limits<float>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(fraction | 0x400, exponent - 25);
}

}  // namespace

bool IsReadAsF32(SafetensorsType type) {
  return type == SafetensorsType::kF32 || type == SafetensorsType::kBf16 ||
         type == SafetensorsType::kF16;
}

void CopyAsF32(const SafetensorsView& tensor, int64_t begin,
               absl::Span<float> out) {
  if (out.empty()) return;
  const int64_t size = BitsOf(tensor.type) / 8;
  const char* from = tensor.bytes.data() + begin * size;
  if (tensor.type == SafetensorsType::kF32) {
    std::memcpy(out.data(), from, out.size() * sizeof(float));
    return;
  }
  const bool is_bf16 = tensor.type == SafetensorsType::kBf16;
  for (size_t i = 0; i < out.size(); ++i) {
    const uint16_t bits = Load16(from + i * size);
    out[i] = is_bf16 ? FromBf16(bits) : FromF16(bits);
  }
}

}  // namespace weft::checkpoint

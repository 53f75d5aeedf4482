// Element types of safetensors files.
#ifndef WEFT_CHECKPOINT_FORMAT_SAFETENSORS_TYPE_H_
#define WEFT_CHECKPOINT_FORMAT_SAFETENSORS_TYPE_H_

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"
#include "base/dtype.h"

namespace weft::checkpoint {

// All types of the format, by ascending size: the writer puts large ones first.
enum class SafetensorsType : uint8_t {
  kF4,
  kF6E2m3,
  kF6E3m2,
  kBool,
  kU8,
  kI8,
  kF8E5m2,
  kF8E4m3,
  kF8E8m0,
  kF8E4m3fnuz,
  kF8E5m2fnuz,
  kI16,
  kU16,
  kF16,
  kBf16,
  kI32,
  kU32,
  kF32,
  kC64,
  kF64,
  kI64,
  kU64,
};

// The name in a file's header, e.g. "BF16".
absl::string_view Name(SafetensorsType type);

// Empty for a name the format does not know.
std::optional<SafetensorsType> SafetensorsTypeByName(absl::string_view name);

// Bits of one element: 4 to 64. Elements below a byte are packed.
int BitsOf(SafetensorsType type);

// The type whose elements are the same bits.
SafetensorsType ToSafetensorsType(DType dtype);
// Empty when Weft does not compute with the type.
std::optional<DType> ToDType(SafetensorsType type);

}  // namespace weft::checkpoint

#endif  // WEFT_CHECKPOINT_FORMAT_SAFETENSORS_TYPE_H_

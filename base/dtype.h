#ifndef WEFT_BASE_DTYPE_H_
#define WEFT_BASE_DTYPE_H_

#include <cstdint>

namespace weft {

// Element type of a value, parameter or buffer.
enum class DType : uint8_t {
  kF32 = 0,
  kF64 = 1,
  kBf16 = 2,
  kI32 = 3,
  kI64 = 4
};

// Bytes of one element.
constexpr int64_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kF64:
    case DType::kI64:
      return 8;
    case DType::kBf16:
      return 2;
  }
  return 0;
}

constexpr const char* Name(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kF64:
      return "f64";
    case DType::kBf16:
      return "bf16";
    case DType::kI32:
      return "i32";
    case DType::kI64:
      return "i64";
  }
  return "?";
}

}  // namespace weft

#endif  // WEFT_BASE_DTYPE_H_

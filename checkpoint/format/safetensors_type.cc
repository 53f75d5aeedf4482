#include "checkpoint/format/safetensors_type.h"

namespace weft::checkpoint {
namespace {

struct Row {
  SafetensorsType type;
  const char* name;
  int bits;
};

// In the order of the enum.
constexpr Row kRows[] = {
    {SafetensorsType::kF4, "F4", 4},
    {SafetensorsType::kF6E2m3, "F6_E2M3", 6},
    {SafetensorsType::kF6E3m2, "F6_E3M2", 6},
    {SafetensorsType::kBool, "BOOL", 8},
    {SafetensorsType::kU8, "U8", 8},
    {SafetensorsType::kI8, "I8", 8},
    {SafetensorsType::kF8E5m2, "F8_E5M2", 8},
    {SafetensorsType::kF8E4m3, "F8_E4M3", 8},
    {SafetensorsType::kF8E8m0, "F8_E8M0", 8},
    {SafetensorsType::kF8E4m3fnuz, "F8_E4M3FNUZ", 8},
    {SafetensorsType::kF8E5m2fnuz, "F8_E5M2FNUZ", 8},
    {SafetensorsType::kI16, "I16", 16},
    {SafetensorsType::kU16, "U16", 16},
    {SafetensorsType::kF16, "F16", 16},
    {SafetensorsType::kBf16, "BF16", 16},
    {SafetensorsType::kI32, "I32", 32},
    {SafetensorsType::kU32, "U32", 32},
    {SafetensorsType::kF32, "F32", 32},
    {SafetensorsType::kC64, "C64", 64},
    {SafetensorsType::kF64, "F64", 64},
    {SafetensorsType::kI64, "I64", 64},
    {SafetensorsType::kU64, "U64", 64},
};

struct Pair {
  DType dtype;
  SafetensorsType type;
};

constexpr Pair kPairs[] = {
    {DType::kF32, SafetensorsType::kF32},
    {DType::kF64, SafetensorsType::kF64},
    {DType::kBf16, SafetensorsType::kBf16},
    {DType::kI32, SafetensorsType::kI32},
    {DType::kI64, SafetensorsType::kI64},
};

const Row& RowOf(SafetensorsType type) { return kRows[static_cast<int>(type)]; }

}  // namespace

absl::string_view Name(SafetensorsType type) { return RowOf(type).name; }

std::optional<SafetensorsType> SafetensorsTypeByName(absl::string_view name) {
  for (const Row& row : kRows) {
    if (name == row.name) return row.type;
  }
  return std::nullopt;
}

int BitsOf(SafetensorsType type) { return RowOf(type).bits; }

SafetensorsType ToSafetensorsType(DType dtype) {
  for (const Pair& pair : kPairs) {
    if (pair.dtype == dtype) return pair.type;
  }
  return SafetensorsType::kU8;  // not reached: kPairs names every DType
}

std::optional<DType> ToDType(SafetensorsType type) {
  for (const Pair& pair : kPairs) {
    if (pair.type == type) return pair.dtype;
  }
  return std::nullopt;
}

}  // namespace weft::checkpoint

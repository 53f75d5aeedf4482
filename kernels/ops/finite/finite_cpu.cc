#include <algorithm>
#include <cstring>

#include "kernels/ops/cuda_form.h"
#include "kernels/ops/finite/finite.h"

namespace weft::ops {
namespace {

// Formats by their bits: what has all of `Exponent` set is not finite.
template <typename Bits, Bits Exponent>
int64_t First(const void* x, int64_t count) {
  const char* bytes = static_cast<const char*>(x);
  for (int64_t i = 0; i < count; ++i) {
    Bits bits;
    std::memcpy(&bits, bytes + i * sizeof(Bits), sizeof(Bits));
    if ((bits & Exponent) == Exponent) return i;
  }
  return -1;
}

template <typename Float>
Float At(const void* x, int64_t index) {
  Float value;
  std::memcpy(&value, static_cast<const char*>(x) + index * sizeof(Float),
              sizeof(Float));
  return value;
}

float Bf16At(const void* x, int64_t index) {
  const uint32_t bits = uint32_t{At<uint16_t>(x, index)} << 16;
  return At<float>(&bits, 0);
}

}  // namespace

void FindNonFinite(const FindNonFiniteArgs& args, device::Stream& stream) {
  if (RunOnCuda<&FindNonFinite>(args, stream)) return;
  NonFinite found;
  int64_t count = args.count;
  if (args.row_count != nullptr) {
    count = std::min(count, *args.row_count * args.columns);
  }
  switch (args.dtype) {
    case DType::kF64:
      found.index = First<uint64_t, uint64_t{0x7ff} << 52>(args.x, count);
      if (found.index >= 0) found.value = At<double>(args.x, found.index);
      break;
    case DType::kBf16:
      found.index = First<uint16_t, 0x7f80>(args.x, count);
      if (found.index >= 0) found.value = Bf16At(args.x, found.index);
      break;
    default:
      found.index = First<uint32_t, 0x7f800000>(args.x, count);
      if (found.index >= 0) found.value = At<float>(args.x, found.index);
      break;
  }
  *args.out = found;
}

}  // namespace weft::ops

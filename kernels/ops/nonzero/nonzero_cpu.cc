#include <algorithm>
#include <cstring>

#include "kernels/ops/cuda_form.h"
#include "kernels/ops/nonzero/nonzero.h"

namespace weft::ops {
namespace {

constexpr int64_t kBlock = 256;

// All bits but the sign's are zero in a zero.
template <typename Bits>
bool Scan(const void* x, int64_t count) {
  constexpr Bits kMagnitude = static_cast<Bits>(~Bits{0}) >> 1;
  const char* bytes = static_cast<const char*>(x);
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t end = std::min(count, begin + kBlock);
    Bits seen = 0;
    for (int64_t i = begin; i < end; ++i) {
      Bits bits;
      std::memcpy(&bits, bytes + i * sizeof(Bits), sizeof(Bits));
      seen |= bits;
    }
    if ((seen & kMagnitude) != 0) return true;
  }
  return false;
}

}  // namespace

void HasNonZero(const HasNonZeroArgs& args, device::Stream& stream) {
  if (RunOnCuda<&HasNonZero>(args, stream)) return;
  const bool found = args.dtype == DType::kBf16
                         ? Scan<uint16_t>(args.x, args.count)
                         : Scan<uint32_t>(args.x, args.count);
  if (found) *args.out = 1;
}

}  // namespace weft::ops

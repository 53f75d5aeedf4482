// Whether a range holds anything but zeros.
#ifndef WEFT_KERNELS_OPS_NONZERO_NONZERO_H_
#define WEFT_KERNELS_OPS_NONZERO_NONZERO_H_

#include <cstdint>

#include "base/dtype.h"
#include "kernels/ops/stream.h"

namespace weft::ops {

// out = 1 when some x is not zero, of either sign; else it is left alone. Reads
// on the CPU no further than the block of the first such x, on CUDA nothing but
// the beginning where that holds one.
struct HasNonZeroArgs {
  int64_t count = 0;
  DType dtype = DType::kF32;  // kF32 or kBf16
  const void* x = nullptr;    // [count]
  uint32_t* out = nullptr;    // [1]
};
void HasNonZero(const HasNonZeroArgs& args, device::Stream& stream);

}  // namespace weft::ops

#endif  // WEFT_KERNELS_OPS_NONZERO_NONZERO_H_

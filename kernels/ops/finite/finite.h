// The first number of a range that is not finite.
#ifndef WEFT_KERNELS_OPS_FINITE_FINITE_H_
#define WEFT_KERNELS_OPS_FINITE_FINITE_H_

#include <cstdint>

#include "base/dtype.h"
#include "kernels/ops/stream.h"

namespace weft::ops {

// An infinity or a NaN, and where it lies; index -1: there is none.
struct NonFinite {
  int64_t index = -1;
  double value = 0;
};

struct FindNonFiniteArgs {
  int64_t count = 0;
  DType dtype = DType::kF32;  // kF32, kF64 or kBf16
  const void* x = nullptr;    // [count]
  NonFinite* out = nullptr;   // [1]; written also when count is 0
  // See math/row_count.h: with it, there are row_count rows of so many
  // elements.
  const int64_t* row_count = nullptr;
  int64_t columns = 1;
};
void FindNonFinite(const FindNonFiniteArgs& args, device::Stream& stream);

}  // namespace weft::ops

#endif  // WEFT_KERNELS_OPS_FINITE_FINITE_H_

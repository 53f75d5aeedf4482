// Sums of eight columns in fp64, as gradients of weights need them.
#ifndef WEFT_KERNELS_OPS_MATH_DOUBLE_SUMS_H_
#define WEFT_KERNELS_OPS_MATH_DOUBLE_SUMS_H_

#include <algorithm>
#include <cstdint>

#include "kernels/ops/math/elements.h"
#include "kernels/ops/math/simd.h"

namespace weft::ops::simd {

struct DoubleSums {
  D4 lower = {};
  D4 upper = {};

  void Add(F8 v) {
    lower += LowerToDouble(v);
    upper += UpperToDouble(v);
  }
  float operator[](int64_t lane) const {
    return static_cast<float>(lane < 4 ? lower[lane] : upper[lane - 4]);
  }
};

// The first `left` sums, at most eight, as ops::WriteOrAdd() writes.
inline void WriteOrAdd(const DoubleSums& sums, int64_t left, bool accumulate,
                       const device::Tensor& to) {
  float values[kLanes];
  for (int64_t i = 0; i < kLanes; ++i) values[i] = sums[i];
  ops::WriteOrAdd(values, std::min(kLanes, left), accumulate, to);
}

}  // namespace weft::ops::simd

#endif  // WEFT_KERNELS_OPS_MATH_DOUBLE_SUMS_H_

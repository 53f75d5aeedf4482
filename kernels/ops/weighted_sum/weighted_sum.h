// Weighted sum of numbers that lie apart, for losses.
#ifndef WEFT_KERNELS_OPS_WEIGHTED_SUM_WEIGHTED_SUM_H_
#define WEFT_KERNELS_OPS_WEIGHTED_SUM_WEIGHTED_SUM_H_

#include <cstdint>

#include "kernels/ops/stream.h"

namespace weft::ops {

// out = sum_i weights[i] * *x[i] in fp64, i ascending; 0 of nothing.
//
// The pointers and the weights are memory of the host and are read before the
// call returns; the numbers and `out` are memory of the device.
struct WeightedSumArgs {
  int64_t count = 0;
  const double* const* x = nullptr;  // [count] pointers
  const double* weights = nullptr;   // [count]
  double* out = nullptr;             // [1]
};
void WeightedSum(const WeightedSumArgs& args, device::Stream& stream);

}  // namespace weft::ops

#endif  // WEFT_KERNELS_OPS_WEIGHTED_SUM_WEIGHTED_SUM_H_

// A bias: one number a column, the same for all rows.
//
//   y = y + bias        dbias = sum_rows dy
#ifndef WEFT_KERNELS_OPS_BIAS_BIAS_H_
#define WEFT_KERNELS_OPS_BIAS_BIAS_H_

#include <cstdint>

#include "kernels/ops/stream.h"

namespace weft::ops {

struct BiasForwardArgs {
  int64_t rows = 0;
  int64_t columns = 0;
  ConstTensor bias;  // [columns], in the format of y
  Tensor y;          // [rows, columns], added to
};
void BiasForward(const BiasForwardArgs& args, device::Stream& stream);

// Rows are summed in fp64.
struct BiasWgradArgs {
  int64_t rows = 0;
  int64_t columns = 0;
  ConstTensor dy;  // [rows, columns]
  Tensor dbias;    // [columns]; zero-filled when rows == 0
  bool accumulate = false;
};
void BiasWgrad(const BiasWgradArgs& args, device::Stream& stream);

}  // namespace weft::ops

#endif  // WEFT_KERNELS_OPS_BIAS_BIAS_H_

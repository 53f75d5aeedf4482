// Ops over rows of which the device alone knows how many there are.
//
// With `row_count`, `rows` of an op is a bound: the op reads how many rows
// there are when it runs, and neither reads nor writes what lies behind them.
#ifndef WEFT_KERNELS_OPS_MATH_ROW_COUNT_H_
#define WEFT_KERNELS_OPS_MATH_ROW_COUNT_H_

#include <cstdint>

namespace weft::ops {

#ifdef __CUDACC__
__host__ __device__
#endif
    inline int64_t
    RowsOf(int64_t rows, const int64_t* row_count) {
  return row_count == nullptr || rows < *row_count ? rows : *row_count;
}

}  // namespace weft::ops

#endif  // WEFT_KERNELS_OPS_MATH_ROW_COUNT_H_

// How a product that cannot be added in place is cut.
#ifndef WEFT_KERNELS_OPS_GEMM_PARTS_H_
#define WEFT_KERNELS_OPS_GEMM_PARTS_H_

#include <cstdint>

namespace weft::ops::internal {

// Most bytes of a product that is held apart before it is added to C, and what
// rounding up to kPartUnit rows puts on top.
constexpr int64_t kMaxPartBytes = int64_t{400} << 20;
// Parts begin at multiples of it, and so on the boundaries that C begins on.
constexpr int64_t kPartUnit = 256;

// Rows of C [rows] computed at a time, with `row_bytes` from row to row: all,
// or even parts of few enough bytes.
inline int64_t RowsOfPart(int64_t rows, int64_t row_bytes) {
  const int64_t parts = rows * row_bytes / kMaxPartBytes + 1;
  return (rows / parts / kPartUnit + 1) * kPartUnit;
}

}  // namespace weft::ops::internal

#endif  // WEFT_KERNELS_OPS_GEMM_PARTS_H_

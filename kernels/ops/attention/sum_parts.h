// Sums of dense matrices in bf16 into columns of packed rows.
#ifndef WEFT_KERNELS_OPS_ATTENTION_SUM_PARTS_H_
#define WEFT_KERNELS_OPS_ATTENTION_SUM_PARTS_H_

#include <cstdint>

#include "base/bf16.h"

namespace weft::device {
class Stream;
}  // namespace weft::device

namespace weft::ops {

// out[row, col] = the sum over p, ascending and in fp32, of parts[p, row, col].
//
// Requires: `columns` and `width` are multiples of 8, both pointers are aligned
// to 16 bytes.
struct SumPartsArgs {
  const Bf16* parts = nullptr;  // [count, rows, columns]
  int64_t count = 0;
  int64_t rows = 0;
  int64_t columns = 0;
  Bf16* out = nullptr;  // `columns` of each of `rows` rows of `width`
  int64_t width = 0;
};
void SumParts(const SumPartsArgs& args, device::Stream& stream);

}  // namespace weft::ops

#endif  // WEFT_KERNELS_OPS_ATTENTION_SUM_PARTS_H_

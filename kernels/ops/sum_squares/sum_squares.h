// Sum of squares of a flat range, for norms and the finiteness gate.
#ifndef WEFT_KERNELS_OPS_SUM_SQUARES_SUM_SQUARES_H_
#define WEFT_KERNELS_OPS_SUM_SQUARES_SUM_SQUARES_H_

#include <cstdint>

#include "kernels/ops/stream.h"

namespace weft::ops {

// out = sum of x^2 in fp64, or out + that with `accumulate`.
//
// The order depends on `count` alone: on the CPU, element i goes to lane i % 8,
// lanes are summed pairwise; on CUDA, runs of eight elements go around up to
// 1056 blocks of 256 threads, of which each sums its own, then threads and
// blocks are summed pairwise and in order. The result is finite exactly when
// every x is finite (the square of a float cannot overflow fp64).
struct SumSquaresArgs {
  int64_t count = 0;
  ConstTensor x;          // [count]
  double* out = nullptr;  // [1]; 0 when count == 0
  bool accumulate = false;
};
void SumSquares(const SumSquaresArgs& args, device::Stream& stream);

}  // namespace weft::ops

#endif  // WEFT_KERNELS_OPS_SUM_SQUARES_SUM_SQUARES_H_

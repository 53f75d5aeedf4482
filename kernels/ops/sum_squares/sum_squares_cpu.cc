#include "kernels/ops/math/simd.h"
#include "kernels/ops/sum_squares/sum_squares.h"

namespace weft::ops {

using simd::D4;

void SumSquares(const SumSquaresArgs& args, device::Stream& stream) {
  D4 lower = {};
  D4 upper = {};
  simd::ForEach8(args.count, [&](int64_t i, auto lanes) {
    const simd::F8 x = simd::Load(args.x + i, lanes);
    const D4 a = simd::LowerToDouble(x);
    const D4 b = simd::UpperToDouble(x);
    lower += a * a;
    upper += b * b;
  });
  const D4 sums = lower + upper;
  const double total = (sums[0] + sums[2]) + (sums[1] + sums[3]);
  *args.out = args.accumulate ? *args.out + total : total;
}

}  // namespace weft::ops

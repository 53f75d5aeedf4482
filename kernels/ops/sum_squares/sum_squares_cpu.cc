#include "kernels/ops/cuda_form.h"
#include "kernels/ops/math/elements.h"
#include "kernels/ops/sum_squares/sum_squares.h"

namespace weft::ops {
namespace {

using simd::D4;

template <typename T>
double Sum(const T* x, int64_t count) {
  D4 lower = {};
  D4 upper = {};
  simd::ForEach8(count, [&](int64_t i, auto lanes) {
    const simd::F8 values = simd::Load(x + i, lanes);
    const D4 a = simd::LowerToDouble(values);
    const D4 b = simd::UpperToDouble(values);
    lower += a * a;
    upper += b * b;
  });
  const D4 sums = lower + upper;
  return (sums[0] + sums[2]) + (sums[1] + sums[3]);
}

}  // namespace

void SumSquares(const SumSquaresArgs& args, device::Stream& stream) {
  if (RunOnCuda<&SumSquares>(args, stream)) return;
  double total = 0;
  WithElementType(args.x.dtype, [&](auto type) {
    total = Sum(Elements<decltype(type)>(args.x), args.count);
  });
  *args.out = args.accumulate ? *args.out + total : total;
}

}  // namespace weft::ops

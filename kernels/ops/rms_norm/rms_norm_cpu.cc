#include <algorithm>
#include <cmath>

#include "kernels/ops/math/simd.h"
#include "kernels/ops/rms_norm/rms_norm.h"

namespace weft::ops {

using simd::F8;

void RmsNormForward(const RmsNormForwardArgs& args, device::Stream& stream) {
  const int64_t hidden = args.hidden;
  for (int64_t row = 0; row < args.rows; ++row) {
    const float* x = args.x + row * hidden;
    float* y = args.y + row * hidden;

    F8 squares = {};
    simd::ForEach8(hidden, [&](int64_t i, auto lanes) {
      const F8 v = simd::Load(x + i, lanes);
      squares += v * v;
    });
    const float mean = simd::SumLanes(squares) / static_cast<float>(hidden);
    const float rstd = 1.0f / std::sqrt(mean + args.eps);
    args.rstd[row] = rstd;

    simd::ForEach8(hidden, [&](int64_t i, auto lanes) {
      const F8 weight = simd::Load(args.weight + i, lanes);
      simd::Store(y + i, simd::Load(x + i, lanes) * rstd * weight, lanes);
    });
  }
}

void RmsNormDgrad(const RmsNormDgradArgs& args, device::Stream& stream) {
  const int64_t hidden = args.hidden;
  for (int64_t row = 0; row < args.rows; ++row) {
    const float* x = args.x + row * hidden;
    const float* dy = args.dy + row * hidden;
    const float* add = args.add != nullptr ? args.add + row * hidden : nullptr;
    float* dx = args.dx + row * hidden;
    const float rstd = args.rstd[row];

    F8 products = {};
    simd::ForEach8(hidden, [&](int64_t i, auto lanes) {
      const F8 t =
          simd::Load(dy + i, lanes) * simd::Load(args.weight + i, lanes);
      products += t * (simd::Load(x + i, lanes) * rstd);
    });
    const float mean = simd::SumLanes(products) / static_cast<float>(hidden);

    simd::ForEach8(hidden, [&](int64_t i, auto lanes) {
      const F8 t =
          simd::Load(dy + i, lanes) * simd::Load(args.weight + i, lanes);
      const F8 xhat = simd::Load(x + i, lanes) * rstd;
      F8 result = rstd * (t - xhat * mean);
      if (add != nullptr) result = simd::Load(add + i, lanes) + result;
      simd::Store(dx + i, result, lanes);
    });
  }
}

void RmsNormWgrad(const RmsNormWgradArgs& args, device::Stream& stream) {
  constexpr int64_t kColumns = 256;  // sums held at a time
  for (int64_t begin = 0; begin < args.hidden; begin += kColumns) {
    const int64_t columns = std::min(kColumns, args.hidden - begin);
    double sums[kColumns] = {};
    for (int64_t row = 0; row < args.rows; ++row) {
      const float* x = args.x + row * args.hidden + begin;
      const float* dy = args.dy + row * args.hidden + begin;
      const float rstd = args.rstd[row];
      for (int64_t i = 0; i < columns; ++i) sums[i] += dy[i] * (x[i] * rstd);
    }
    float* dweight = args.dweight + begin;
    for (int64_t i = 0; i < columns; ++i) {
      const float sum = static_cast<float>(sums[i]);
      dweight[i] = args.accumulate ? dweight[i] + sum : sum;
    }
  }
}

}  // namespace weft::ops

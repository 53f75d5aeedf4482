#include <algorithm>
#include <cmath>

#include "kernels/ops/cuda_form.h"
#include "kernels/ops/math/elements.h"
#include "kernels/ops/rms_norm/rms_norm.h"

namespace weft::ops {

namespace {

using simd::F8;

template <typename T>
void Forward(const RmsNormForwardArgs& args) {
  const T* weights = Elements<T>(args.weight);
  const int64_t hidden = args.hidden;
  for (int64_t row = 0; row < args.rows; ++row) {
    const T* x = Elements<T>(args.x) + row * hidden;
    T* y = Elements<T>(args.y) + row * hidden;

    F8 squares = {};
    simd::ForEach8(hidden, [&](int64_t i, auto lanes) {
      const F8 v = simd::Load(x + i, lanes);
      squares += v * v;
    });
    const float mean = simd::SumLanes(squares) / static_cast<float>(hidden);
    const float rstd = 1.0f / std::sqrt(mean + args.eps);
    args.rstd[row] = rstd;

    simd::ForEach8(hidden, [&](int64_t i, auto lanes) {
      const F8 weight = simd::Load(weights + i, lanes);
      simd::Store(y + i, simd::Load(x + i, lanes) * rstd * weight, lanes);
    });
  }
}

template <typename T>
void Dgrad(const RmsNormDgradArgs& args) {
  const T* weights = Elements<T>(args.weight);
  const int64_t hidden = args.hidden;
  for (int64_t row = 0; row < args.rows; ++row) {
    const T* x = Elements<T>(args.x) + row * hidden;
    const T* dy = Elements<T>(args.dy) + row * hidden;
    const T* add = args.add.data != nullptr
                       ? Elements<T>(args.add) + row * hidden
                       : nullptr;
    T* dx = Elements<T>(args.dx) + row * hidden;
    const float rstd = args.rstd[row];

    F8 products = {};
    simd::ForEach8(hidden, [&](int64_t i, auto lanes) {
      const F8 t = simd::Load(dy + i, lanes) * simd::Load(weights + i, lanes);
      products += t * (simd::Load(x + i, lanes) * rstd);
    });
    const float mean = simd::SumLanes(products) / static_cast<float>(hidden);

    simd::ForEach8(hidden, [&](int64_t i, auto lanes) {
      const F8 t = simd::Load(dy + i, lanes) * simd::Load(weights + i, lanes);
      const F8 xhat = simd::Load(x + i, lanes) * rstd;
      F8 result = rstd * (t - xhat * mean);
      if (add != nullptr) result = simd::Load(add + i, lanes) + result;
      simd::Store(dx + i, result, lanes);
    });
  }
}

template <typename T>
void Wgrad(const RmsNormWgradArgs& args) {
  constexpr int64_t kColumns = 256;  // sums held at a time
  for (int64_t begin = 0; begin < args.hidden; begin += kColumns) {
    const int64_t columns = std::min(kColumns, args.hidden - begin);
    double sums[kColumns] = {};
    for (int64_t row = 0; row < args.rows; ++row) {
      const T* x = Elements<T>(args.x) + row * args.hidden + begin;
      const T* dy = Elements<T>(args.dy) + row * args.hidden + begin;
      const float rstd = args.rstd[row];
      for (int64_t i = 0; i < columns; ++i) {
        sums[i] += ToFloat(dy[i]) * (ToFloat(x[i]) * rstd);
      }
    }
    float values[kColumns];
    std::copy(sums, sums + columns, values);
    WriteOrAdd(values, columns, args.accumulate, args.dweight + begin);
  }
}

}  // namespace

void RmsNormForward(const RmsNormForwardArgs& args, device::Stream& stream) {
  if (RunOnCuda<&RmsNormForward>(args, stream)) return;
  WithElementType(args.y.dtype,
                  [&](auto type) { Forward<decltype(type)>(args); });
}

void RmsNormDgrad(const RmsNormDgradArgs& args, device::Stream& stream) {
  if (RunOnCuda<&RmsNormDgrad>(args, stream)) return;
  WithElementType(args.dx.dtype,
                  [&](auto type) { Dgrad<decltype(type)>(args); });
}

void RmsNormWgrad(const RmsNormWgradArgs& args, device::Stream& stream) {
  if (RunOnCuda<&RmsNormWgrad>(args, stream)) return;
  WithElementType(args.dy.dtype,
                  [&](auto type) { Wgrad<decltype(type)>(args); });
}

}  // namespace weft::ops

#include <algorithm>

#include "kernels/ops/bias/bias.h"
#include "kernels/ops/cuda_form.h"
#include "kernels/ops/math/elements.h"

namespace weft::ops {
namespace {

template <typename T>
void Forward(const BiasForwardArgs& args) {
  const T* bias = Elements<T>(args.bias);
  for (int64_t row = 0; row < args.rows; ++row) {
    T* y = Elements<T>(args.y) + row * args.columns;
    simd::ForEach8(args.columns, [&](int64_t i, auto lanes) {
      simd::Store(y + i, simd::Load(y + i, lanes) + simd::Load(bias + i, lanes),
                  lanes);
    });
  }
}

template <typename T>
void Wgrad(const BiasWgradArgs& args) {
  constexpr int64_t kColumns = 256;  // sums held at a time
  for (int64_t begin = 0; begin < args.columns; begin += kColumns) {
    const int64_t columns = std::min(kColumns, args.columns - begin);
    double sums[kColumns] = {};
    for (int64_t row = 0; row < args.rows; ++row) {
      const T* dy = Elements<T>(args.dy) + row * args.columns + begin;
      for (int64_t i = 0; i < columns; ++i) sums[i] += ToFloat(dy[i]);
    }
    float values[kColumns];
    std::copy(sums, sums + columns, values);
    WriteOrAdd(values, columns, args.accumulate, args.dbias + begin);
  }
}

}  // namespace

void BiasForward(const BiasForwardArgs& args, device::Stream& stream) {
  if (RunOnCuda<&BiasForward>(args, stream)) return;
  WithElementType(args.y.dtype,
                  [&](auto type) { Forward<decltype(type)>(args); });
}

void BiasWgrad(const BiasWgradArgs& args, device::Stream& stream) {
  if (RunOnCuda<&BiasWgrad>(args, stream)) return;
  WithElementType(args.dy.dtype,
                  [&](auto type) { Wgrad<decltype(type)>(args); });
}

}  // namespace weft::ops

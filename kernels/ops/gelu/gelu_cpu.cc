#include "kernels/ops/cuda_form.h"
#include "kernels/ops/gelu/gelu.h"
#include "kernels/ops/math/elements.h"
#include "kernels/ops/math/row_count.h"
#include "kernels/ops/math/vec_math.h"

namespace weft::ops {

using simd::F8;

namespace {

// erfc(z) / 2 of z >= 0 with a relative error below 1.2e-7 beside that of its
// rounding: the Chebyshev fit of Press et al., "Numerical Recipes", 6.2.
F8 HalfErfc(F8 z) {
  const F8 t = 1.0f / (1.0f + 0.5f * z);
  F8 p = simd::Splat(0.17087277f);
  p = p * t + -0.82215223f;
  p = p * t + 1.48851587f;
  p = p * t + -1.13520398f;
  p = p * t + 0.27886807f;
  p = p * t + -0.18628806f;
  p = p * t + 0.09678418f;
  p = p * t + 0.37409196f;
  p = p * t + 1.00002368f;
  p = p * t + -1.26551223f;
  return 0.5f * t * simd::Exp(p - z * z);
}

F8 Cdf(F8 x) {
  const F8 half = HalfErfc((x < 0.0f ? -x : x) * 0.707106781186547524f);
  return x < 0.0f ? half : 1.0f - half;
}

F8 Pdf(F8 x) { return simd::Exp(-0.5f * x * x) * 0.398942280401432678f; }

template <typename T>
void Forward(const GeluForwardArgs& args) {
  const int64_t rows = RowsOf(args.rows, args.row_count);
  for (int64_t row = 0; row < rows; ++row) {
    const T* x = Elements<T>(args.x) + row * args.ffn;
    T* out = Elements<T>(args.out) + row * args.ffn;
    const float prob = args.prob != nullptr ? args.prob[row] : 1.0f;
    simd::ForEach8(args.ffn, [&](int64_t i, auto lanes) {
      const F8 v = simd::Load(x + i, lanes);
      simd::Store(out + i, v * Cdf(v) * prob, lanes);
    });
  }
}

template <typename T>
void Backward(const GeluBackwardArgs& args) {
  const int64_t rows = RowsOf(args.rows, args.row_count);
  for (int64_t row = 0; row < rows; ++row) {
    const T* x = Elements<T>(args.x) + row * args.ffn;
    const T* d_out = Elements<T>(args.d_out) + row * args.ffn;
    T* d_x = Elements<T>(args.d_x) + row * args.ffn;
    const float prob = args.prob != nullptr ? args.prob[row] : 1.0f;
    F8 d_prob = {};
    simd::ForEach8(args.ffn, [&](int64_t i, auto lanes) {
      const F8 v = simd::Load(x + i, lanes);
      const F8 d = simd::Load(d_out + i, lanes);
      const F8 cdf = Cdf(v);
      d_prob += d * (v * cdf);
      simd::Store(d_x + i, d * prob * (cdf + v * Pdf(v)), lanes);
    });
    if (args.d_prob != nullptr) args.d_prob[row] = simd::SumLanes(d_prob);
  }
}

}  // namespace

void GeluForward(const GeluForwardArgs& args, device::Stream& stream) {
  if (RunOnCuda<&GeluForward>(args, stream)) return;
  WithElementType(args.out.dtype,
                  [&](auto type) { Forward<decltype(type)>(args); });
}

void GeluBackward(const GeluBackwardArgs& args, device::Stream& stream) {
  if (RunOnCuda<&GeluBackward>(args, stream)) return;
  WithElementType(args.d_x.dtype,
                  [&](auto type) { Backward<decltype(type)>(args); });
}

}  // namespace weft::ops

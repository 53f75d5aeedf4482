#include "kernels/ops/cuda_form.h"
#include "kernels/ops/math/elements.h"
#include "kernels/ops/math/row_count.h"
#include "kernels/ops/math/vec_math.h"
#include "kernels/ops/swiglu/swiglu.h"

namespace weft::ops {

namespace {

using simd::F8;

template <typename T>
void Forward(const SwigluForwardArgs& args) {
  const int64_t rows = RowsOf(args.rows, args.row_count);
  for (int64_t row = 0; row < rows; ++row) {
    const T* gate = Elements<T>(args.gate_up) + row * 2 * args.ffn;
    const T* up = gate + args.ffn;
    T* out = Elements<T>(args.out) + row * args.ffn;
    const float prob = args.prob != nullptr ? args.prob[row] : 1.0f;
    simd::ForEach8(args.ffn, [&](int64_t i, auto lanes) {
      const F8 g = simd::Load(gate + i, lanes);
      const F8 silu = g * simd::Sigmoid(g);
      simd::Store(out + i, silu * simd::Load(up + i, lanes) * prob, lanes);
    });
  }
}

template <typename T>
void Backward(const SwigluBackwardArgs& args) {
  const int64_t rows = RowsOf(args.rows, args.row_count);
  for (int64_t row = 0; row < rows; ++row) {
    const T* gate = Elements<T>(args.gate_up) + row * 2 * args.ffn;
    const T* up = gate + args.ffn;
    const T* d_out = Elements<T>(args.d_out) + row * args.ffn;
    T* d_gate = Elements<T>(args.d_gate_up) + row * 2 * args.ffn;
    T* d_up = d_gate + args.ffn;
    const float prob = args.prob != nullptr ? args.prob[row] : 1.0f;
    F8 d_prob = {};
    simd::ForEach8(args.ffn, [&](int64_t i, auto lanes) {
      const F8 g = simd::Load(gate + i, lanes);
      const F8 u = simd::Load(up + i, lanes);
      const F8 d = simd::Load(d_out + i, lanes);
      const F8 s = simd::Sigmoid(g);
      const F8 silu = g * s;
      d_prob += d * (silu * u);
      const F8 dp = d * prob;
      simd::Store(d_gate + i, dp * u * (s * (1.0f + g * (1.0f - s))), lanes);
      simd::Store(d_up + i, dp * silu, lanes);
    });
    if (args.d_prob != nullptr) args.d_prob[row] = simd::SumLanes(d_prob);
  }
}

}  // namespace

void SwigluForward(const SwigluForwardArgs& args, device::Stream& stream) {
  if (RunOnCuda<&SwigluForward>(args, stream)) return;
  WithElementType(args.out.dtype,
                  [&](auto type) { Forward<decltype(type)>(args); });
}

void SwigluBackward(const SwigluBackwardArgs& args, device::Stream& stream) {
  if (RunOnCuda<&SwigluBackward>(args, stream)) return;
  WithElementType(args.d_gate_up.dtype,
                  [&](auto type) { Backward<decltype(type)>(args); });
}

}  // namespace weft::ops

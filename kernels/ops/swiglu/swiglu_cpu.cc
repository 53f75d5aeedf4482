#include "kernels/ops/math/simd.h"
#include "kernels/ops/math/vec_math.h"
#include "kernels/ops/swiglu/swiglu.h"

namespace weft::ops {

using simd::F8;

void SwigluForward(const SwigluForwardArgs& args, device::Stream& stream) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const float* gate = args.gate_up + row * 2 * args.ffn;
    const float* up = gate + args.ffn;
    float* out = args.out + row * args.ffn;
    const float prob = args.prob != nullptr ? args.prob[row] : 1.0f;
    simd::ForEach8(args.ffn, [&](int64_t i, auto lanes) {
      const F8 g = simd::Load(gate + i, lanes);
      const F8 silu = g * simd::Sigmoid(g);
      simd::Store(out + i, silu * simd::Load(up + i, lanes) * prob, lanes);
    });
  }
}

void SwigluBackward(const SwigluBackwardArgs& args, device::Stream& stream) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const float* gate = args.gate_up + row * 2 * args.ffn;
    const float* up = gate + args.ffn;
    const float* d_out = args.d_out + row * args.ffn;
    float* d_gate = args.d_gate_up + row * 2 * args.ffn;
    float* d_up = d_gate + args.ffn;
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

}  // namespace weft::ops

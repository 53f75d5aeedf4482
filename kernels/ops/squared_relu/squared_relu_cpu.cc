#include "kernels/ops/math/simd.h"
#include "kernels/ops/squared_relu/squared_relu.h"

namespace weft::ops {

using simd::F8;

namespace {

// NaN stays NaN.
F8 Relu(F8 x) { return x < 0.0f ? F8{} : x; }

}  // namespace

void SquaredReluForward(const SquaredReluForwardArgs& args,
                        device::Stream& stream) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const float* x = args.x + row * args.ffn;
    float* out = args.out + row * args.ffn;
    const float prob = args.prob != nullptr ? args.prob[row] : 1.0f;
    simd::ForEach8(args.ffn, [&](int64_t i, auto lanes) {
      const F8 r = Relu(simd::Load(x + i, lanes));
      simd::Store(out + i, r * r * prob, lanes);
    });
  }
}

void SquaredReluBackward(const SquaredReluBackwardArgs& args,
                         device::Stream& stream) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const float* x = args.x + row * args.ffn;
    const float* d_out = args.d_out + row * args.ffn;
    float* d_x = args.d_x + row * args.ffn;
    const float prob = args.prob != nullptr ? args.prob[row] : 1.0f;
    F8 d_prob = {};
    simd::ForEach8(args.ffn, [&](int64_t i, auto lanes) {
      const F8 r = Relu(simd::Load(x + i, lanes));
      const F8 d = simd::Load(d_out + i, lanes);
      d_prob += d * (r * r);
      simd::Store(d_x + i, d * prob * (r + r), lanes);
    });
    if (args.d_prob != nullptr) args.d_prob[row] = simd::SumLanes(d_prob);
  }
}

}  // namespace weft::ops

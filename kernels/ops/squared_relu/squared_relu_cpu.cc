#include "kernels/ops/cuda_form.h"
#include "kernels/ops/math/elements.h"
#include "kernels/ops/math/row_count.h"
#include "kernels/ops/squared_relu/squared_relu.h"

namespace weft::ops {

using simd::F8;

namespace {

// NaN stays NaN.
F8 Relu(F8 x) { return x < 0.0f ? F8{} : x; }

template <typename T>
void Forward(const SquaredReluForwardArgs& args) {
  const int64_t rows = RowsOf(args.rows, args.row_count);
  for (int64_t row = 0; row < rows; ++row) {
    const T* x = Elements<T>(args.x) + row * args.ffn;
    T* out = Elements<T>(args.out) + row * args.ffn;
    const float prob = args.prob != nullptr ? args.prob[row] : 1.0f;
    simd::ForEach8(args.ffn, [&](int64_t i, auto lanes) {
      const F8 r = Relu(simd::Load(x + i, lanes));
      simd::Store(out + i, r * r * prob, lanes);
    });
  }
}

template <typename T>
void Backward(const SquaredReluBackwardArgs& args) {
  const int64_t rows = RowsOf(args.rows, args.row_count);
  for (int64_t row = 0; row < rows; ++row) {
    const T* x = Elements<T>(args.x) + row * args.ffn;
    const T* d_out = Elements<T>(args.d_out) + row * args.ffn;
    T* d_x = Elements<T>(args.d_x) + row * args.ffn;
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

}  // namespace

void SquaredReluForward(const SquaredReluForwardArgs& args,
                        device::Stream& stream) {
  if (RunOnCuda<&SquaredReluForward>(args, stream)) return;
  WithElementType(args.out.dtype,
                  [&](auto type) { Forward<decltype(type)>(args); });
}

void SquaredReluBackward(const SquaredReluBackwardArgs& args,
                         device::Stream& stream) {
  if (RunOnCuda<&SquaredReluBackward>(args, stream)) return;
  WithElementType(args.d_x.dtype,
                  [&](auto type) { Backward<decltype(type)>(args); });
}

}  // namespace weft::ops

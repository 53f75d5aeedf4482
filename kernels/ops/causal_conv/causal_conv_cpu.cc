#include <algorithm>

#include "kernels/ops/causal_conv/causal_conv.h"
#include "kernels/ops/cuda_form.h"
#include "kernels/ops/math/double_sums.h"
#include "kernels/ops/math/elements.h"
#include "kernels/ops/math/vec_math.h"

namespace weft::ops {
namespace {

using simd::F8;
using simd::kLanes;

// The parameters of eight channels; beyond the last channel they are zero.
struct Taps {
  F8 weight[kMaxConvWidth] = {};
  F8 bias = {};
};

template <typename T>
Taps LoadTaps(const CausalConvShape& s, const ConstTensor& weight,
              const ConstTensor& bias, int64_t channel) {
  const int64_t count = std::min(kLanes, s.channels - channel);
  Taps taps;
  for (int64_t lane = 0; lane < count; ++lane) {
    const T* of_channel = Elements<T>(weight) + (channel + lane) * s.width;
    for (int64_t w = 0; w < s.width; ++w) {
      taps.weight[w][lane] = ToFloat(of_channel[w]);
    }
    if (bias != nullptr) {
      taps.bias[lane] = ToFloat(Elements<T>(bias)[channel + lane]);
    }
  }
  return taps;
}

// pre of one position; `x` is the position's row at the first channel.
template <typename T, typename Lanes>
F8 PreActivation(const CausalConvShape& s, const Taps& taps, int64_t position,
                 const T* x, Lanes lanes) {
  F8 pre = taps.bias;
  for (int64_t w = std::max<int64_t>(0, s.width - 1 - position); w < s.width;
       ++w) {
    const T* row = x + (w - (s.width - 1)) * s.stride;
    pre = simd::MultiplyAdd(taps.weight[w], simd::Load(row, lanes), pre);
  }
  return pre;
}

// Calls f(token, position in its sequence), ascending.
template <typename F>
void ForEachToken(const CausalConvShape& s, F&& f) {
  for (int64_t sequence = 0; sequence < s.batch; ++sequence) {
    for (int64_t t = 0; t < s.seq; ++t) f(sequence * s.seq + t, t);
  }
}

template <typename T>
void Forward(const CausalConvForwardArgs& args) {
  const CausalConvShape& s = args.shape;
  simd::ForEach8(s.channels, [&](int64_t c, auto lanes) {
    const Taps taps = LoadTaps<T>(s, args.weight, args.bias, c);
    ForEachToken(s, [&](int64_t token, int64_t position) {
      const T* x = Elements<T>(args.x) + token * s.stride + c;
      const F8 pre = PreActivation(s, taps, position, x, lanes);
      simd::Store(Elements<T>(args.y) + token * s.channels + c,
                  pre * simd::Sigmoid(pre), lanes);
    });
  });
}

// dy -> d_pre, of eight channels.
template <typename T, typename Lanes>
void ActivationGrad(const CausalConvBackwardArgs& args, const Taps& taps,
                    int64_t c, Lanes lanes) {
  const CausalConvShape& s = args.shape;
  ForEachToken(s, [&](int64_t token, int64_t position) {
    const T* x = Elements<T>(args.x) + token * s.stride + c;
    const F8 pre = PreActivation(s, taps, position, x, lanes);
    const F8 sigmoid = simd::Sigmoid(pre);
    float* dy = args.dy + token * s.channels + c;
    simd::Store(
        dy, simd::Load(dy, lanes) * (sigmoid * (1.0f + pre * (1.0f - sigmoid))),
        lanes);
  });
}

template <typename T, typename Lanes>
void InputGrad(const CausalConvBackwardArgs& args, const Taps& taps, int64_t c,
               Lanes lanes) {
  const CausalConvShape& s = args.shape;
  ForEachToken(s, [&](int64_t token, int64_t position) {
    const float* d_pre = args.dy + token * s.channels + c;
    F8 dx = {};
    for (int64_t w = std::max<int64_t>(0, s.width - s.seq + position);
         w < s.width; ++w) {
      const float* row = d_pre + (s.width - 1 - w) * s.channels;
      dx = simd::MultiplyAdd(taps.weight[w], simd::Load(row, lanes), dx);
    }
    simd::Store(Elements<T>(args.dx) + token * s.stride + c, dx, lanes);
  });
}

template <typename T, typename Lanes>
void WeightGrad(const CausalConvBackwardArgs& args, int64_t c, Lanes lanes) {
  const CausalConvShape& s = args.shape;
  simd::DoubleSums sums[kMaxConvWidth];
  ForEachToken(s, [&](int64_t token, int64_t position) {
    const F8 d_pre = simd::Load(args.dy + token * s.channels + c, lanes);
    const T* x = Elements<T>(args.x) + token * s.stride + c;
    for (int64_t w = std::max<int64_t>(0, s.width - 1 - position); w < s.width;
         ++w) {
      const T* row = x + (w - (s.width - 1)) * s.stride;
      sums[w].Add(d_pre * simd::Load(row, lanes));
    }
  });
  for (int64_t i = 0; i < std::min(kLanes, s.channels - c); ++i) {
    float of_channel[kMaxConvWidth];
    for (int64_t w = 0; w < s.width; ++w) of_channel[w] = sums[w][i];
    WriteOrAdd(of_channel, s.width, args.accumulate_dweight,
               args.dweight + (c + i) * s.width);
  }
}

template <typename Lanes>
void BiasGrad(const CausalConvBackwardArgs& args, int64_t c, Lanes lanes) {
  const CausalConvShape& s = args.shape;
  simd::DoubleSums sums;
  for (int64_t token = 0; token < s.tokens(); ++token) {
    sums.Add(simd::Load(args.dy + token * s.channels + c, lanes));
  }
  simd::WriteOrAdd(sums, s.channels - c, args.accumulate_dbias, args.dbias + c);
}

template <typename T>
void Backward(const CausalConvBackwardArgs& args) {
  const CausalConvShape& s = args.shape;
  simd::ForEach8(s.channels, [&](int64_t c, auto lanes) {
    const Taps taps = LoadTaps<T>(s, args.weight, args.bias, c);
    ActivationGrad<T>(args, taps, c, lanes);
    InputGrad<T>(args, taps, c, lanes);
    if (args.dweight != nullptr) WeightGrad<T>(args, c, lanes);
    if (args.dbias != nullptr) BiasGrad(args, c, lanes);
  });
}

}  // namespace

void CausalConvForward(const CausalConvForwardArgs& args,
                       device::Stream& stream) {
  if (RunOnCuda<&CausalConvForward>(args, stream)) return;
  WithElementType(args.y.dtype,
                  [&](auto type) { Forward<decltype(type)>(args); });
}

void CausalConvBackward(const CausalConvBackwardArgs& args,
                        device::Stream& stream) {
  if (RunOnCuda<&CausalConvBackward>(args, stream)) return;
  WithElementType(args.dx.dtype,
                  [&](auto type) { Backward<decltype(type)>(args); });
}

}  // namespace weft::ops

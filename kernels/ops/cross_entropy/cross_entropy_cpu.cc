#include <cmath>
#include <cstring>

#include "kernels/ops/cross_entropy/cross_entropy.h"
#include "kernels/ops/cuda_form.h"
#include "kernels/ops/math/elements.h"
#include "kernels/ops/math/vec_math.h"

namespace weft::ops {
namespace {

using simd::F8;

// log(sum(exp(x))) of one row.
template <typename T>
double LogSumExp(const T* x, int64_t count) {
  const float first = ToFloat(x[0]);
  F8 max8 = simd::Splat(first);
  simd::ForEach8(count, [&](int64_t i, auto lanes) {
    max8 = simd::Max(max8, simd::Load(x + i, lanes, first));
  });
  const float max = simd::MaxLanes(max8);
  F8 sums = {};
  simd::ForEach8(count, [&](int64_t i, auto lanes) {
    sums += simd::Keep(simd::Exp(simd::Load(x + i, lanes) - max), lanes);
  });
  return static_cast<double>(max) +
         std::log(static_cast<double>(simd::SumLanes(sums)));
}

template <typename T>
void Forward(const CrossEntropyForwardArgs& args) {
  double loss_sum = 0;
  int64_t loss_tokens = 0;
  for (int64_t t = 0; t < args.tokens; ++t) {
    const T* logits = Elements<T>(args.logits) + t * args.vocab;
    const double lse = LogSumExp(logits, args.vocab);
    args.lse[t] = static_cast<float>(lse);
    if (args.labels[t] == kIgnoredLabel) continue;
    loss_sum += lse - static_cast<double>(ToFloat(logits[args.labels[t]]));
    ++loss_tokens;
  }
  *args.loss_sum = loss_sum;
  if (args.loss_tokens != nullptr) *args.loss_tokens = loss_tokens;
}

template <typename T>
void Backward(const CrossEntropyBackwardArgs& args) {
  const float scale =
      args.weight == nullptr ? args.scale : args.scale * *args.weight;
  for (int64_t t = 0; t < args.tokens; ++t) {
    const T* logits = Elements<T>(args.logits) + t * args.vocab;
    T* d_logits = Elements<T>(args.d_logits) + t * args.vocab;
    if (args.labels[t] == kIgnoredLabel) {
      std::memset(d_logits, 0, args.vocab * sizeof(T));
      continue;
    }
    const float lse = args.lse[t];
    // p - 1 in one piece: subtracting scale from scale * p afterwards would
    // round twice.
    const float label_logit = ToFloat(logits[args.labels[t]]);
    simd::ForEach8(args.vocab, [&](int64_t i, auto lanes) {
      const F8 p = simd::Exp(simd::Load(logits + i, lanes) - lse);
      simd::Store(d_logits + i, p * scale, lanes);
    });
    const float p = simd::Exp(simd::Splat(label_logit - lse))[0];
    SetElement(d_logits + args.labels[t], (p - 1.0f) * scale);
  }
}

}  // namespace

void CrossEntropyForward(const CrossEntropyForwardArgs& args,
                         device::Stream& stream) {
  if (RunOnCuda<&CrossEntropyForward>(args, stream)) return;
  WithElementType(args.logits.dtype,
                  [&](auto type) { Forward<decltype(type)>(args); });
}

void CrossEntropyBackward(const CrossEntropyBackwardArgs& args,
                          device::Stream& stream) {
  if (RunOnCuda<&CrossEntropyBackward>(args, stream)) return;
  WithElementType(args.logits.dtype,
                  [&](auto type) { Backward<decltype(type)>(args); });
}

}  // namespace weft::ops

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/ops/cuda_form.h"
#include "kernels/ops/elementwise/elementwise.h"
#include "kernels/ops/math/elements.h"

namespace weft::ops {

void Add(const AddArgs& args, device::Stream& stream) {
  if (RunOnCuda<&Add>(args, stream)) return;
  WithElementType(args.out.dtype, [&](auto type) {
    using T = decltype(type);
    const T* a = Elements<T>(args.a);
    const T* b = Elements<T>(args.b);
    T* out = Elements<T>(args.out);
    const simd::F8 factor = simd::Splat(args.factor);
    simd::ForEach8(args.count, [&](int64_t i, auto lanes) {
      const simd::F8 sum = simd::MultiplyAdd(factor, simd::Load(b + i, lanes),
                                             simd::Load(a + i, lanes));
      simd::Store(out + i, sum, lanes);
    });
  });
}

void Scale(const ScaleArgs& args, device::Stream& stream) {
  if (RunOnCuda<&Scale>(args, stream)) return;
  WithElementType(args.out.dtype, [&](auto type) {
    using T = decltype(type);
    const T* x = Elements<T>(args.x);
    T* out = Elements<T>(args.out);
    simd::ForEach8(args.count, [&](int64_t i, auto lanes) {
      simd::Store(out + i, args.factor * simd::Load(x + i, lanes), lanes);
    });
  });
}

void Sigmoid(const SigmoidArgs& args, device::Stream& stream) {
  if (RunOnCuda<&Sigmoid>(args, stream)) return;
  for (int64_t i = 0; i < args.count; ++i) {
    args.out[i] = 1.0f / (1.0f + std::exp(-args.x[i]));
  }
}

void SigmoidDgrad(const SigmoidDgradArgs& args, device::Stream& stream) {
  if (RunOnCuda<&SigmoidDgrad>(args, stream)) return;
  for (int64_t i = 0; i < args.count; ++i) {
    args.out[i] = args.dy[i] * args.y[i] * (1.0f - args.y[i]);
  }
}

void Fill(const FillArgs& args, device::Stream& stream) {
  if (RunOnCuda<&Fill>(args, stream)) return;
  WithElementType(args.out.dtype, [&](auto type) {
    using T = decltype(type);
    T value;
    SetElement(&value, args.value);
    std::fill_n(Elements<T>(args.out), args.count, value);
  });
}

void Copy(const CopyArgs& args, device::Stream& stream) {
  if (RunOnCuda<&Copy>(args, stream)) return;
  if (args.count == 0 || args.x.data == args.out.data) return;
  if (args.x.dtype == args.out.dtype) {
    std::memcpy(args.out.data, args.x.data, args.count * SizeOf(args.x.dtype));
    return;
  }
  WithElementType(args.x.dtype, [&](auto from) {
    WithElementType(args.out.dtype, [&](auto to) {
      ConvertElements(Elements<decltype(from)>(args.x), args.count,
                      Elements<decltype(to)>(args.out));
    });
  });
}

}  // namespace weft::ops

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/ops/elementwise/elementwise.h"

namespace weft::ops {

void Add(const AddArgs& args, device::Stream& stream) {
  for (int64_t i = 0; i < args.count; ++i) args.out[i] = args.a[i] + args.b[i];
}

void Scale(const ScaleArgs& args, device::Stream& stream) {
  for (int64_t i = 0; i < args.count; ++i)
    args.out[i] = args.factor * args.x[i];
}

void Axpy(const AxpyArgs& args, device::Stream& stream) {
  for (int64_t i = 0; i < args.count; ++i) {
    args.y[i] = std::fma(args.factor, args.x[i], args.y[i]);
  }
}

void Sigmoid(const SigmoidArgs& args, device::Stream& stream) {
  for (int64_t i = 0; i < args.count; ++i) {
    args.out[i] = 1.0f / (1.0f + std::exp(-args.x[i]));
  }
}

void SigmoidDgrad(const SigmoidDgradArgs& args, device::Stream& stream) {
  for (int64_t i = 0; i < args.count; ++i) {
    args.out[i] = args.dy[i] * args.y[i] * (1.0f - args.y[i]);
  }
}

void Fill(const FillArgs& args, device::Stream& stream) {
  std::fill_n(args.out, args.count, args.value);
}

void Copy(const CopyArgs& args, device::Stream& stream) {
  if (args.count == 0 || args.x == args.out) return;
  std::memcpy(args.out, args.x, args.count * sizeof(float));
}

}  // namespace weft::ops

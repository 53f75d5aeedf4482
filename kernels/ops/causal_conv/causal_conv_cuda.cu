// A thread computes one channel of one token.
#include "kernels/device/cuda/launch.h"
#include "kernels/ops/causal_conv/causal_conv.h"
#include "kernels/ops/cuda_form.h"
#include "kernels/ops/math/column_sums.cuh"
#include "kernels/ops/math/pack.cuh"
#include "kernels/ops/math/sigmoid.cuh"

namespace weft::ops {
namespace {

using cuda::Elements;
using cuda::Floats;
using cuda::kPack;

constexpr int kThreads = 256;

dim3 GridOf(const CausalConvShape& s) {
  return dim3(s.tokens(), cuda::CeilDiv(s.channels, kThreads));
}

// The channel of this thread; its token is blockIdx.x.
__device__ int64_t ChannelOfThread() {
  return int64_t{blockIdx.y} * kThreads + threadIdx.x;
}

template <typename T>
__device__ float PreActivation(const CausalConvShape& s, const ConstTensor& x,
                               const ConstTensor& weight,
                               const ConstTensor& bias, int64_t token,
                               int64_t channel) {
  const int64_t position = token % s.seq;
  const T* at = Elements<T>(x) + token * s.stride + channel;
  const T* taps = Elements<T>(weight) + channel * s.width;
  float pre = 0;
  if (bias.data != nullptr) pre = cuda::Load(Elements<T>(bias) + channel);
  for (int64_t w = max(int64_t{0}, s.width - 1 - position); w < s.width; ++w) {
    pre = fmaf(cuda::Load(taps + w),
               cuda::Load(at + (w - (s.width - 1)) * s.stride), pre);
  }
  return pre;
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    ForwardKernel(const CausalConvForwardArgs args) {
  const CausalConvShape& s = args.shape;
  const int64_t token = blockIdx.x;
  const int64_t channel = ChannelOfThread();
  if (channel >= s.channels) return;
  const float pre =
      PreActivation<T>(s, args.x, args.weight, args.bias, token, channel);
  cuda::Store(Elements<T>(args.y) + token * s.channels + channel,
              pre * cuda::Sigmoid(pre));
}

// dy -> d_pre
template <typename T>
__global__ void __launch_bounds__(kThreads)
    ActivationGradKernel(const CausalConvBackwardArgs args) {
  const CausalConvShape& s = args.shape;
  const int64_t token = blockIdx.x;
  const int64_t channel = ChannelOfThread();
  if (channel >= s.channels) return;
  const float pre =
      PreActivation<T>(s, args.x, args.weight, args.bias, token, channel);
  const float sigmoid = cuda::Sigmoid(pre);
  args.dy[token * s.channels + channel] *=
      sigmoid * (1.0f + pre * (1.0f - sigmoid));
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    InputGradKernel(const CausalConvBackwardArgs args) {
  const CausalConvShape& s = args.shape;
  const int64_t token = blockIdx.x;
  const int64_t channel = ChannelOfThread();
  if (channel >= s.channels) return;
  const int64_t position = token % s.seq;
  const float* d_pre = args.dy + token * s.channels + channel;
  const T* taps = Elements<T>(args.weight) + channel * s.width;
  float dx = 0;
  for (int64_t w = max(int64_t{0}, s.width - s.seq + position); w < s.width;
       ++w) {
    dx = fmaf(cuda::Load(taps + w), d_pre[(s.width - 1 - w) * s.channels], dx);
  }
  cuda::Store(Elements<T>(args.dx) + token * s.stride + channel, dx);
}

// d_pre * x as rows of [channels, width] columns.
template <typename T>
struct WeightGradSource {
  CausalConvShape shape;
  const T* x;
  const float* d_pre;

  using Loaded = Floats;

  __device__ Floats Load(int64_t row, int64_t column, int64_t left) const {
    const int64_t position = row % shape.seq;
    Floats values = {};
    for (int j = 0; j < kPack; ++j) {
      if (j >= left) continue;
      const int64_t channel = (column + j) / shape.width;
      const int64_t back = shape.width - 1 - (column + j) % shape.width;
      if (back > position) continue;
      values.v[j] = d_pre[row * shape.channels + channel] *
                    cuda::Load(x + (row - back) * shape.stride + channel);
    }
    return values;
  }
  __device__ Floats Values(const Floats& loaded) const { return loaded; }
};

struct BiasGradSource {
  int64_t channels;
  const float* d_pre;

  using Loaded = Floats;

  __device__ Floats Load(int64_t row, int64_t column, int64_t left) const {
    Floats values = {};
    for (int j = 0; j < kPack; ++j) {
      if (j < left) values.v[j] = d_pre[row * channels + column + j];
    }
    return values;
  }
  __device__ Floats Values(const Floats& loaded) const { return loaded; }
};

void Forward(const CausalConvForwardArgs& args, device::Stream& stream) {
  const CausalConvShape& s = args.shape;
  if (s.tokens() * s.channels == 0) return;
  cuda::WithElementType(args.y.dtype, [&](auto type) {
    ForwardKernel<decltype(type)>
        <<<GridOf(s), kThreads, 0, device::cuda::Handle(stream)>>>(args);
  });
  device::cuda::CheckLaunch("CausalConvForward", stream);
}

template <typename T>
void InputGrads(const CausalConvBackwardArgs& args, device::Stream& stream) {
  const CausalConvShape& s = args.shape;
  if (s.tokens() * s.channels == 0) return;
  const cudaStream_t handle = device::cuda::Handle(stream);
  ActivationGradKernel<T><<<GridOf(s), kThreads, 0, handle>>>(args);
  InputGradKernel<T><<<GridOf(s), kThreads, 0, handle>>>(args);
  device::cuda::CheckLaunch("CausalConvBackward", stream);
}

void Backward(const CausalConvBackwardArgs& args, device::Stream& stream) {
  const CausalConvShape& s = args.shape;
  cuda::WithElementType(args.dx.dtype, [&](auto type) {
    using T = decltype(type);
    InputGrads<T>(args, stream);
    if (args.dweight == nullptr) return;
    const WeightGradSource<T> source = {s, Elements<T>(args.x), args.dy};
    cuda::SumColumns(source, s.tokens(), s.channels * s.width, args.dweight,
                     args.accumulate_dweight, stream);
  });
  if (args.dbias == nullptr) return;
  const BiasGradSource source = {s.channels, args.dy};
  cuda::SumColumns(source, s.tokens(), s.channels, args.dbias,
                   args.accumulate_dbias, stream);
}

[[maybe_unused]] const bool kForward =
    RegisterCudaForm<&CausalConvForward>(&Forward);
[[maybe_unused]] const bool kBackward =
    RegisterCudaForm<&CausalConvBackward>(&Backward);

}  // namespace
}  // namespace weft::ops

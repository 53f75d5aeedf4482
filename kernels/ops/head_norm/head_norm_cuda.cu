// A few neighbouring threads of a warp share a head.
#include <algorithm>

#include "kernels/device/cuda/launch.h"
#include "kernels/ops/cuda_form.h"
#include "kernels/ops/head_norm/head_norm.h"
#include "kernels/ops/math/column_sums.cuh"
#include "kernels/ops/math/pack.cuh"

namespace weft::ops {
namespace {

using cuda::Elements;
using cuda::Floats;
using cuda::kPack;
using cuda::Widen;

constexpr int kThreads = 256;
constexpr int kWarp = 32;

// Threads that share a head: a power of two.
int LanesOf(int64_t head_dim) {
  int lanes = 1;
  while (lanes < kWarp && lanes * kPack < head_dim) lanes *= 2;
  return lanes;
}

// The sum over `lanes` neighbouring threads, in pairs.
__device__ float LaneSum(float value, int lanes) {
  for (int distance = lanes / 2; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(0xFFFFFFFFu, value, distance);
  }
  return value;
}

// Where the head of this thread lies; a thread behind the last has none, but
// takes part in sums.
struct Head {
  bool exists = false;
  int64_t token = 0;
  int64_t head = 0;
  int64_t begin = 0;   // its first element here,
  int64_t stride = 0;  // and how far apart its packs lie

  __device__ Head(const HeadNormShape& shape, int lanes) {
    const int64_t index =
        (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / lanes;
    exists = index < shape.tokens * shape.heads;
    if (!exists) return;
    token = index / shape.heads;
    head = index - token * shape.heads;
    begin = threadIdx.x % lanes * kPack;
    stride = lanes * kPack;
  }

  template <typename F>
  __device__ void ForEach(const HeadNormShape& shape, F f) const {
    if (!exists) return;
    for (int64_t at = begin; at < shape.head_dim; at += stride) {
      f(at, shape.head_dim - at);
    }
  }
};

template <typename T, bool kAligned>
__global__ void __launch_bounds__(kThreads)
    ForwardKernel(const HeadNormForwardArgs args, int lanes) {
  const HeadNormShape& s = args.shape;
  const Head head(s, lanes);
  const int64_t offset = head.head * s.head_dim;
  T* y = Elements<T>(args.qkv) + head.token * s.stride + offset;
  T* x = Elements<T>(args.x) + head.token * s.kept_stride + offset;
  const T* weights = Elements<T>(args.weight);

  float squares = 0;
  head.ForEach(s, [&](int64_t at, int64_t left) {
    const cuda::Pack<T> pack = cuda::LoadPack<kAligned>(y + at, left);
    cuda::StorePack<kAligned>(pack, x + at, left);
    const Floats v = Widen(pack);
#pragma unroll
    for (int j = 0; j < kPack; ++j) squares = fmaf(v.v[j], v.v[j], squares);
  });
  const float mean = LaneSum(squares, lanes) / static_cast<float>(s.head_dim);
  const float rstd = 1.0f / sqrtf(mean + args.eps);
  if (head.exists && head.begin == 0) {
    args.rstd[head.token * s.rstd_stride + head.head] = rstd;
  }
  head.ForEach(s, [&](int64_t at, int64_t left) {
    Floats v = Widen(cuda::LoadPack<kAligned>(y + at, left));
    const Floats weight = Widen(cuda::LoadPack<kAligned>(weights + at, left));
#pragma unroll
    for (int j = 0; j < kPack; ++j) v.v[j] = v.v[j] * rstd * weight.v[j];
    cuda::StoreFloats<kAligned>(v, y + at, left);
  });
}

template <typename T, bool kAligned>
__global__ void __launch_bounds__(kThreads)
    DgradKernel(const HeadNormBackwardArgs args, int lanes) {
  const HeadNormShape& s = args.shape;
  const Head head(s, lanes);
  const int64_t offset = head.head * s.head_dim;
  T* d = Elements<T>(args.d_qkv) + head.token * s.stride + offset;
  const T* x = Elements<T>(args.x) + head.token * s.kept_stride + offset;
  const T* weights = Elements<T>(args.weight);
  const float rstd =
      head.exists ? args.rstd[head.token * s.rstd_stride + head.head] : 0;

  // t = dy * weight and xhat
  const auto load = [&](int64_t at, int64_t left, Floats* t, Floats* xhat) {
    *t = Widen(cuda::LoadPack<kAligned>(d + at, left));
    *xhat = Widen(cuda::LoadPack<kAligned>(x + at, left));
    const Floats weight = Widen(cuda::LoadPack<kAligned>(weights + at, left));
#pragma unroll
    for (int j = 0; j < kPack; ++j) {
      t->v[j] *= weight.v[j];
      xhat->v[j] *= rstd;
    }
  };
  float products = 0;
  head.ForEach(s, [&](int64_t at, int64_t left) {
    Floats t, xhat;
    load(at, left, &t, &xhat);
#pragma unroll
    for (int j = 0; j < kPack; ++j) {
      products = fmaf(t.v[j], xhat.v[j], products);
    }
  });
  const float mean = LaneSum(products, lanes) / static_cast<float>(s.head_dim);
  head.ForEach(s, [&](int64_t at, int64_t left) {
    Floats t, xhat;
    load(at, left, &t, &xhat);
#pragma unroll
    for (int j = 0; j < kPack; ++j) {
      t.v[j] = rstd * fmaf(-xhat.v[j], mean, t.v[j]);
    }
    cuda::StoreFloats<kAligned>(t, d + at, left);
  });
}

// dy * xhat of a token's head, as a row.
template <typename T, bool kAligned>
struct WgradSource {
  HeadNormShape shape;
  const T* x;
  const T* dy;
  const float* rstd;

  struct Loaded {
    cuda::Pack<T> x;
    cuda::Pack<T> dy;
    float rstd;
  };

  __device__ Loaded Load(int64_t row, int64_t column, int64_t left) const {
    const int64_t token = row / shape.heads;
    const int64_t head = row - token * shape.heads;
    const int64_t at = head * shape.head_dim + column;
    return {cuda::LoadPack<kAligned>(x + token * shape.kept_stride + at, left),
            cuda::LoadPack<kAligned>(dy + token * shape.stride + at, left),
            rstd[token * shape.rstd_stride + head]};
  }

  __device__ Floats Values(const Loaded& loaded) const {
    const Floats v = Widen(loaded.x);
    Floats d = Widen(loaded.dy);
#pragma unroll
    for (int j = 0; j < kPack; ++j) d.v[j] *= v.v[j] * loaded.rstd;
    return d;
  }
};

template <typename... Pointers>
bool HeadsAligned(const HeadNormShape& s, Pointers... pointers) {
  return s.head_dim % kPack == 0 && s.kept_stride % kPack == 0 &&
         cuda::PacksAligned(s.stride, pointers...);
}

int64_t BlocksOf(const HeadNormShape& s, int lanes) {
  return cuda::CeilDiv(s.tokens * s.heads, kThreads / lanes);
}

void Forward(const HeadNormForwardArgs& args, device::Stream& stream) {
  const HeadNormShape& s = args.shape;
  if (s.tokens * s.heads == 0) return;
  const bool aligned =
      HeadsAligned(s, args.weight.data, args.qkv.data, args.x.data);
  const int lanes = LanesOf(s.head_dim);
  cuda::WithFormat(args.qkv.dtype, aligned, [&](auto type, auto is_aligned) {
    ForwardKernel<decltype(type), is_aligned.value>
        <<<BlocksOf(s, lanes), kThreads, 0, device::cuda::Handle(stream)>>>(
            args, lanes);
  });
  device::cuda::CheckLaunch("HeadNormForward", stream);
}

void Backward(const HeadNormBackwardArgs& args, device::Stream& stream) {
  const HeadNormShape& s = args.shape;
  const bool aligned =
      HeadsAligned(s, args.weight.data, args.x.data, args.d_qkv.data);
  const int lanes = LanesOf(s.head_dim);
  cuda::WithFormat(args.d_qkv.dtype, aligned, [&](auto type, auto is_aligned) {
    using T = decltype(type);
    if (args.dweight != nullptr) {
      const WgradSource<T, is_aligned.value> source = {
          s, Elements<T>(args.x), Elements<T>(args.d_qkv), args.rstd};
      cuda::SumColumns(source, s.tokens * s.heads, s.head_dim, args.dweight,
                       args.accumulate, stream);
    }
    if (s.tokens * s.heads == 0) return;
    DgradKernel<T, is_aligned.value>
        <<<BlocksOf(s, lanes), kThreads, 0, device::cuda::Handle(stream)>>>(
            args, lanes);
  });
  device::cuda::CheckLaunch("HeadNormBackward", stream);
}

[[maybe_unused]] const bool kForward =
    RegisterCudaForm<&HeadNormForward>(&Forward);
[[maybe_unused]] const bool kBackward =
    RegisterCudaForm<&HeadNormBackward>(&Backward);

}  // namespace
}  // namespace weft::ops

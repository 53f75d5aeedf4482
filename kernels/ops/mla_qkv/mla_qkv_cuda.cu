// A block has a token; its threads take the elements of what is written in
// turn. Each rotated element is computed by itself.
#include "kernels/device/cuda/launch.h"
#include "kernels/ops/cuda_form.h"
#include "kernels/ops/math/cuda.cuh"
#include "kernels/ops/mla_qkv/mla_qkv.h"

namespace weft::ops {
namespace {

using cuda::Elements;
using cuda::Load;
using cuda::Store;

constexpr int kThreads = 256;

// The angle of element `at` of a rotated part, by position.
struct Angle {
  float cos;
  float sin;

  __device__ static Angle At(const MlaQkvShape& s, int64_t token, int64_t i) {
    const int64_t at = token % s.seq * (s.rope_dim / 2) + i;
    return {s.cos[at], s.sin[at]};
  }
};

// Element `at` of rotated(x).
template <typename T>
__device__ float Rotated(const MlaQkvShape& s, int64_t token, const T* x,
                         int64_t at) {
  const int64_t half = s.rope_dim / 2;
  const int64_t i = at < half ? at : at - half;
  const float a = Load(x + (s.half_split ? i : 2 * i));
  const float b = Load(x + (s.half_split ? i + half : 2 * i + 1));
  const Angle angle = Angle::At(s, token, i);
  return at < half ? fmaf(a, angle.cos, -__fmul_rn(b, angle.sin))
                   : fmaf(b, angle.cos, __fmul_rn(a, angle.sin));
}

// Element `at` of the sum of `heads` gradients, `stride` elements apart, turned
// back.
template <typename T>
__device__ float TurnedBack(const MlaQkvShape& s, int64_t token, const T* dy,
                            int64_t heads, int64_t stride, int64_t at) {
  const int64_t half = s.rope_dim / 2;
  const bool is_first = s.half_split ? at < half : at % 2 == 0;
  const int64_t i = s.half_split ? at % half : at / 2;
  float a = Load(dy + i);
  float b = Load(dy + half + i);
  for (int64_t head = 1; head < heads; ++head) {
    a += Load(dy + head * stride + i);
    b += Load(dy + head * stride + half + i);
  }
  const Angle angle = Angle::At(s, token, i);
  return is_first ? fmaf(a, angle.cos, __fmul_rn(b, angle.sin))
                  : fmaf(b, angle.cos, -__fmul_rn(a, angle.sin));
}

// Calls f(head, column) for the elements of this thread.
template <typename F>
__device__ void ForEachOfHeads(int64_t heads, int64_t columns, F f) {
  const int width = static_cast<int>(heads * columns);
  for (int i = threadIdx.x; i < width; i += kThreads) {
    f(i / static_cast<int>(columns), i % static_cast<int>(columns));
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    ForwardKernel(const MlaQkvForwardArgs args) {
  const MlaQkvShape& s = args.shape;
  const int64_t token = blockIdx.x;
  const T* q = Elements<T>(args.q) + token * s.q_width();
  const T* kv = Elements<T>(args.kv) + token * s.kv_width();
  const T* k_rope = Elements<T>(args.k_rope) + token * s.rope_dim;
  T* query = Elements<T>(args.qkv) + token * s.qkv_width();
  T* key = query + s.q_width();
  T* value = key + s.q_width();
  const int64_t kv_dim = s.plain_dim + s.v_dim;
  ForEachOfHeads(s.heads, s.qk_dim(), [&](int64_t head, int64_t column) {
    const int64_t to = head * s.qk_dim() + column;
    if (column < s.plain_dim) {
      query[to] = q[to];
      key[to] = kv[head * kv_dim + column];
      return;
    }
    const int64_t at = column - s.plain_dim;
    const T* q_rope = q + head * s.qk_dim() + s.plain_dim;
    Store(query + to, Rotated(s, token, q_rope, at));
    Store(key + to, Rotated(s, token, k_rope, at));
  });
  ForEachOfHeads(s.heads, s.v_dim, [&](int64_t head, int64_t column) {
    value[head * s.v_dim + column] = kv[head * kv_dim + s.plain_dim + column];
  });
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    BackwardKernel(const MlaQkvBackwardArgs args) {
  const MlaQkvShape& s = args.shape;
  const int64_t token = blockIdx.x;
  const T* d_query = Elements<T>(args.d_qkv) + token * s.qkv_width();
  const T* d_key = d_query + s.q_width();
  const T* d_value = d_key + s.q_width();
  T* d_q = Elements<T>(args.d_q) + token * s.q_width();
  T* d_kv = Elements<T>(args.d_kv) + token * s.kv_width();
  T* d_k_rope = Elements<T>(args.d_k_rope) + token * s.rope_dim;
  const int64_t kv_dim = s.plain_dim + s.v_dim;
  ForEachOfHeads(1, s.rope_dim, [&](int64_t, int64_t at) {
    Store(d_k_rope + at,
          TurnedBack(s, token, d_key + s.plain_dim, s.heads, s.qk_dim(), at));
  });
  ForEachOfHeads(s.heads, s.qk_dim(), [&](int64_t head, int64_t column) {
    const int64_t from = head * s.qk_dim() + column;
    if (column < s.plain_dim) {
      d_q[from] = d_query[from];
      d_kv[head * kv_dim + column] = d_key[from];
      return;
    }
    const T* dy = d_query + head * s.qk_dim() + s.plain_dim;
    Store(d_q + from, TurnedBack(s, token, dy, 1, 0, column - s.plain_dim));
  });
  ForEachOfHeads(s.heads, s.v_dim, [&](int64_t head, int64_t column) {
    d_kv[head * kv_dim + s.plain_dim + column] =
        d_value[head * s.v_dim + column];
  });
}

bool IsEmpty(const MlaQkvShape& s) { return s.tokens == 0 || s.heads == 0; }

void Forward(const MlaQkvForwardArgs& args, device::Stream& stream) {
  if (IsEmpty(args.shape)) return;
  cuda::WithElementType(args.qkv.dtype, [&](auto type) {
    ForwardKernel<decltype(type)>
        <<<static_cast<unsigned>(args.shape.tokens), kThreads, 0,
           device::cuda::Handle(stream)>>>(args);
  });
  device::cuda::CheckLaunch("MlaQkvForward", stream);
}

void Backward(const MlaQkvBackwardArgs& args, device::Stream& stream) {
  if (IsEmpty(args.shape)) return;
  cuda::WithElementType(args.d_qkv.dtype, [&](auto type) {
    BackwardKernel<decltype(type)>
        <<<static_cast<unsigned>(args.shape.tokens), kThreads, 0,
           device::cuda::Handle(stream)>>>(args);
  });
  device::cuda::CheckLaunch("MlaQkvBackward", stream);
}

[[maybe_unused]] const bool kForward =
    RegisterCudaForm<&MlaQkvForward>(&Forward);
[[maybe_unused]] const bool kBackward =
    RegisterCudaForm<&MlaQkvBackward>(&Backward);

}  // namespace
}  // namespace weft::ops

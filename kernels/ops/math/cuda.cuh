// What kernels of ops share: elements of both formats in fp32 registers, 16
// bytes at a time, and sums in a fixed order.
#ifndef WEFT_KERNELS_OPS_MATH_CUDA_CUH_
#define WEFT_KERNELS_OPS_MATH_CUDA_CUH_

#include <cuda_bf16.h>

#include <cstdint>

#include "base/bf16.h"
#include "kernels/device/tensor.h"

namespace weft::ops::cuda {

__device__ inline float Load(const float* at) { return *at; }
__device__ inline float Load(const Bf16* at) {
  return __uint_as_float(static_cast<uint32_t>(at->bits) << 16);
}

__device__ inline void Store(float* at, float value) { *at = value; }
// To the nearest, of two the even one.
__device__ inline void Store(Bf16* at, float value) {
  at->bits = __bfloat16_as_ushort(__float2bfloat16_rn(value));
}

// `value` as an element of type T holds it.
template <typename T>
__device__ inline float Rounded(float value) {
  T element;
  Store(&element, value);
  return Load(&element);
}

// Elements of type T in 16 bytes.
template <typename T>
inline constexpr int kVector = 16 / sizeof(T);

// Whether `bytes` bytes can be accessed at once there.
inline bool IsAligned(const void* data, int64_t bytes = 16) {
  return reinterpret_cast<uintptr_t>(data) % bytes == 0;
}

// The elements in 16 bytes.
__device__ inline void Unpack(const uint4& v, float (&out)[4]) {
  out[0] = __uint_as_float(v.x);
  out[1] = __uint_as_float(v.y);
  out[2] = __uint_as_float(v.z);
  out[3] = __uint_as_float(v.w);
}
__device__ inline void Unpack(const uint4& v, float (&out)[8]) {
  const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    out[2 * i] = __uint_as_float(words[i] << 16);
    out[2 * i + 1] = __uint_as_float(words[i] & 0xFFFF0000u);
  }
}

// Requires: `at` is aligned to 16 bytes.
template <typename T>
__device__ inline void LoadVector(const T* at, float (&out)[kVector<T>]) {
  Unpack(*reinterpret_cast<const uint4*>(at), out);
}

__device__ inline void StoreVector(float* at, const float (&in)[4]) {
  *reinterpret_cast<float4*>(at) = make_float4(in[0], in[1], in[2], in[3]);
}
__device__ inline void StoreVector(Bf16* at, const float (&in)[8]) {
  uint32_t words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(in[2 * i], in[2 * i + 1]);
    words[i] = *reinterpret_cast<const uint32_t*>(&pair);
  }
  *reinterpret_cast<uint4*>(at) =
      make_uint4(words[0], words[1], words[2], words[3]);
}

// The sum over the lanes of a warp, in every lane; the order is fixed.
template <typename T>
__device__ inline T WarpSum(T value) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    value += __shfl_xor_sync(0xFFFFFFFFu, value, step);
  }
  return value;
}

// The sum over a block of kThreads threads, in every thread; the order is
// fixed. All threads take part. May be called again after the call.
template <int kThreads, typename T>
__device__ inline T BlockSum(T value) {
  constexpr int kWarps = kThreads / 32;
  __shared__ T sums[kWarps];
  value = WarpSum(value);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = value;
  __syncthreads();
  T total = sums[0];
#pragma unroll
  for (int w = 1; w < kWarps; ++w) total += sums[w];
  __syncthreads();
  return total;
}

// Calls f(T()) with the type of an element: float or Bf16.
template <typename F>
void WithElementType(DType dtype, F&& f) {
  if (dtype == DType::kBf16) {
    f(Bf16());
  } else {
    f(float());
  }
}

template <typename T>
__host__ __device__ const T* Elements(const device::ConstTensor& tensor) {
  return static_cast<const T*>(tensor.data);
}
template <typename T>
__host__ __device__ T* Elements(const device::Tensor& tensor) {
  return static_cast<T*>(tensor.data);
}

// A block of kThreads threads for rows of `width` accesses: x along a row, at
// least a warp, y along rows.
template <int kThreads>
dim3 RowBlock(int64_t width) {
  int x = 32;
  while (x < kThreads && x < width) x *= 2;
  return dim3(x, kThreads / x);
}

inline int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace weft::ops::cuda

#endif  // WEFT_KERNELS_OPS_MATH_CUDA_CUH_

// Kernels of activations of one input with an optional factor per row, a block
// a row. `Activation` has
//
//   static __device__ float Value(float x);
//   static __device__ void ValueAndSlope(float x, float* value, float* slope);
//
// and arguments are those of GeluForward and GeluBackward, or alike.
#ifndef WEFT_KERNELS_OPS_MATH_ACTIVATION_CUH_
#define WEFT_KERNELS_OPS_MATH_ACTIVATION_CUH_

#include "kernels/device/cuda/launch.h"
#include "kernels/ops/math/pack.cuh"
#include "kernels/ops/math/row_count.h"

namespace weft::ops::cuda {

constexpr int kActivationBatch = 2;  // packs of an array a thread loads at once

template <typename Activation, typename T, bool kAligned, typename Args>
__global__ void __launch_bounds__(kMaxRowThreads)
    ActivationKernel(const Args args) {
  const int64_t row = blockIdx.x;
  if (row >= RowsOf(args.rows, args.row_count)) return;
  const int64_t ffn = args.ffn;
  const T* x = Elements<T>(args.x) + row * ffn;
  T* out = Elements<T>(args.out) + row * ffn;
  const float prob = args.prob != nullptr ? args.prob[row] : 1.0f;
  const auto write = [&](int64_t at, const Pack<T>& pack) {
    Floats v = Widen(pack);
#pragma unroll
    for (int j = 0; j < kPack; ++j) v.v[j] = Activation::Value(v.v[j]) * prob;
    StoreFloats<kAligned>(v, out + at, ffn - at);
  };
  using RowBatch = Batch<T, kAligned, kActivationBatch>;
  for (int64_t at = RowBegin(); at < ffn;
       at += kActivationBatch * RowStride()) {
    ForEachPack(at, ffn, write, RowBatch(x, at, ffn));
  }
}

template <typename Activation, typename T, bool kAligned, typename Args>
__global__ void __launch_bounds__(kMaxRowThreads)
    ActivationGradKernel(const Args args) {
  const int64_t row = blockIdx.x;
  if (row >= RowsOf(args.rows, args.row_count)) return;
  const int64_t ffn = args.ffn;
  const T* x = Elements<T>(args.x) + row * ffn;
  const T* d_out = Elements<T>(args.d_out) + row * ffn;
  T* d_x = Elements<T>(args.d_x) + row * ffn;
  const float prob = args.prob != nullptr ? args.prob[row] : 1.0f;
  float d_prob = 0;
  const auto write = [&](int64_t at, const Pack<T>& pack, const Pack<T>& ds) {
    const Floats v = Widen(pack);
    Floats d = Widen(ds);
#pragma unroll
    for (int j = 0; j < kPack; ++j) {
      float value;
      float slope;
      Activation::ValueAndSlope(v.v[j], &value, &slope);
      d_prob = fmaf(d.v[j], value, d_prob);
      d.v[j] = d.v[j] * prob * slope;
    }
    StoreFloats<kAligned>(d, d_x + at, ffn - at);
  };
  using RowBatch = Batch<T, kAligned, kActivationBatch>;
  for (int64_t at = RowBegin(); at < ffn;
       at += kActivationBatch * RowStride()) {
    ForEachPack(at, ffn, write, RowBatch(x, at, ffn), RowBatch(d_out, at, ffn));
  }
  if (args.d_prob == nullptr) return;
  d_prob = RowSum(d_prob);
  if (threadIdx.x == 0) args.d_prob[row] = d_prob;
}

// `name` says in errors what was launched.
template <typename Activation, typename Args>
void RunActivation(const Args& args, const char* name, device::Stream& stream) {
  if (args.rows == 0) return;
  const bool aligned = PacksAligned(args.ffn, args.x.data, args.out.data);
  WithFormat(args.out.dtype, aligned, [&](auto type, auto is_aligned) {
    ActivationKernel<Activation, decltype(type), is_aligned.value>
        <<<args.rows, RowThreads(args.ffn, kActivationBatch), 0,
           device::cuda::Handle(stream)>>>(args);
  });
  device::cuda::CheckLaunch(name, stream);
}

template <typename Activation, typename Args>
void RunActivationGrad(const Args& args, const char* name,
                       device::Stream& stream) {
  if (args.rows == 0) return;
  const bool aligned =
      PacksAligned(args.ffn, args.x.data, args.d_out.data, args.d_x.data);
  WithFormat(args.d_x.dtype, aligned, [&](auto type, auto is_aligned) {
    ActivationGradKernel<Activation, decltype(type), is_aligned.value>
        <<<args.rows, RowThreads(args.ffn, kActivationBatch), 0,
           device::cuda::Handle(stream)>>>(args);
  });
  device::cuda::CheckLaunch(name, stream);
}

}  // namespace weft::ops::cuda

#endif  // WEFT_KERNELS_OPS_MATH_ACTIVATION_CUH_

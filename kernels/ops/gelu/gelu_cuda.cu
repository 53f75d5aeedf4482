// A block a row.
#include "kernels/device/cuda/launch.h"
#include "kernels/ops/cuda_form.h"
#include "kernels/ops/gelu/gelu.h"
#include "kernels/ops/math/pack.cuh"
#include "kernels/ops/math/row_count.h"

namespace weft::ops {
namespace {

using cuda::Batch;
using cuda::Elements;
using cuda::Floats;
using cuda::kPack;
using cuda::Pack;
using cuda::RowBegin;
using cuda::RowStride;
using cuda::Widen;

constexpr int kBatch = 2;

__device__ float Pdf(float x) {
  return expf(-0.5f * x * x) * 0.398942280401432678f;
}

template <typename T, bool kAligned>
__global__ void __launch_bounds__(cuda::kMaxRowThreads)
    ForwardKernel(const GeluForwardArgs args) {
  const int64_t row = blockIdx.x;
  if (row >= RowsOf(args.rows, args.row_count)) return;
  const int64_t ffn = args.ffn;
  const T* x = Elements<T>(args.x) + row * ffn;
  T* out = Elements<T>(args.out) + row * ffn;
  const float prob = args.prob != nullptr ? args.prob[row] : 1.0f;
  const auto write = [&](int64_t at, const Pack<T>& pack) {
    Floats v = Widen(pack);
#pragma unroll
    for (int j = 0; j < kPack; ++j) {
      v.v[j] = v.v[j] * normcdff(v.v[j]) * prob;
    }
    cuda::StoreFloats<kAligned>(v, out + at, ffn - at);
  };
  for (int64_t at = RowBegin(); at < ffn; at += kBatch * RowStride()) {
    cuda::ForEachPack(at, ffn, write, Batch<T, kAligned, kBatch>(x, at, ffn));
  }
}

template <typename T, bool kAligned>
__global__ void __launch_bounds__(cuda::kMaxRowThreads)
    BackwardKernel(const GeluBackwardArgs args) {
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
      const float input = v.v[j];
      const float cdf = normcdff(input);
      d_prob = fmaf(d.v[j], input * cdf, d_prob);
      d.v[j] = d.v[j] * prob * fmaf(input, Pdf(input), cdf);
    }
    cuda::StoreFloats<kAligned>(d, d_x + at, ffn - at);
  };
  using RowBatch = Batch<T, kAligned, kBatch>;
  for (int64_t at = RowBegin(); at < ffn; at += kBatch * RowStride()) {
    cuda::ForEachPack(at, ffn, write, RowBatch(x, at, ffn),
                      RowBatch(d_out, at, ffn));
  }
  if (args.d_prob == nullptr) return;
  d_prob = cuda::RowSum(d_prob);
  if (threadIdx.x == 0) args.d_prob[row] = d_prob;
}

void Forward(const GeluForwardArgs& args, device::Stream& stream) {
  if (args.rows == 0) return;
  const bool aligned = cuda::PacksAligned(args.ffn, args.x.data, args.out.data);
  cuda::WithFormat(args.out.dtype, aligned, [&](auto type, auto is_aligned) {
    ForwardKernel<decltype(type), is_aligned.value>
        <<<args.rows, cuda::RowThreads(args.ffn, kBatch), 0,
           device::cuda::Handle(stream)>>>(args);
  });
  device::cuda::CheckLaunch("GeluForward", stream);
}

void Backward(const GeluBackwardArgs& args, device::Stream& stream) {
  if (args.rows == 0) return;
  const bool aligned =
      cuda::PacksAligned(args.ffn, args.x.data, args.d_out.data, args.d_x.data);
  cuda::WithFormat(args.d_x.dtype, aligned, [&](auto type, auto is_aligned) {
    BackwardKernel<decltype(type), is_aligned.value>
        <<<args.rows, cuda::RowThreads(args.ffn, kBatch), 0,
           device::cuda::Handle(stream)>>>(args);
  });
  device::cuda::CheckLaunch("GeluBackward", stream);
}

[[maybe_unused]] const bool kForward = RegisterCudaForm<&GeluForward>(&Forward);
[[maybe_unused]] const bool kBackward =
    RegisterCudaForm<&GeluBackward>(&Backward);

}  // namespace
}  // namespace weft::ops

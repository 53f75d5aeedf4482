// A block a row.
#include "kernels/device/cuda/launch.h"
#include "kernels/ops/cuda_form.h"
#include "kernels/ops/math/pack.cuh"
#include "kernels/ops/math/row_count.h"
#include "kernels/ops/math/sigmoid.cuh"
#include "kernels/ops/swiglu/swiglu.h"

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

template <typename T, bool kAligned>
__global__ void __launch_bounds__(cuda::kMaxRowThreads)
    ForwardKernel(const SwigluForwardArgs args) {
  const int64_t row = blockIdx.x;
  if (row >= RowsOf(args.rows, args.row_count)) return;
  const int64_t ffn = args.ffn;
  const T* gate = Elements<T>(args.gate_up) + row * 2 * ffn;
  const T* up = gate + ffn;
  T* out = Elements<T>(args.out) + row * ffn;
  const float prob = args.prob != nullptr ? args.prob[row] : 1.0f;
  const auto write = [&](int64_t at, const Pack<T>& gates, const Pack<T>& ups) {
    Floats g = Widen(gates);
    const Floats u = Widen(ups);
#pragma unroll
    for (int j = 0; j < kPack; ++j) {
      g.v[j] = g.v[j] * cuda::Sigmoid(g.v[j]) * u.v[j] * prob;
    }
    cuda::StoreFloats<kAligned>(g, out + at, ffn - at);
  };
  using RowBatch = Batch<T, kAligned, kBatch>;
  for (int64_t at = RowBegin(); at < ffn; at += kBatch * RowStride()) {
    cuda::ForEachPack(at, ffn, write, RowBatch(gate, at, ffn),
                      RowBatch(up, at, ffn));
  }
}

// What backward makes of an element.
struct Gradients {
  float gate = 0;
  float up = 0;
  float prob = 0;  // the element's share
};

__device__ Gradients GradientsOf(float g, float u, float d, float prob) {
  const float s = cuda::Sigmoid(g);
  const float silu = __fmul_rn(g, s);
  const float dp = d * prob;
  Gradients result;
  result.gate = dp * u * (s * fmaf(g, 1.0f - s, 1.0f));
  result.up = dp * silu;
  result.prob = d * (silu * u);
  return result;
}

template <typename T, bool kAligned>
__global__ void __launch_bounds__(cuda::kMaxRowThreads)
    BackwardKernel(const SwigluBackwardArgs args) {
  const int64_t row = blockIdx.x;
  if (row >= RowsOf(args.rows, args.row_count)) return;
  const int64_t ffn = args.ffn;
  const T* gate = Elements<T>(args.gate_up) + row * 2 * ffn;
  const T* d_out = Elements<T>(args.d_out) + row * ffn;
  T* d_gate = Elements<T>(args.d_gate_up) + row * 2 * ffn;
  const float prob = args.prob != nullptr ? args.prob[row] : 1.0f;
  float d_prob = 0;
  const auto write = [&](int64_t at, const Pack<T>& gates, const Pack<T>& ups,
                         const Pack<T>& ds) {
    Floats g = Widen(gates);
    Floats u = Widen(ups);
    const Floats d = Widen(ds);
#pragma unroll
    for (int j = 0; j < kPack; ++j) {
      const Gradients of = GradientsOf(g.v[j], u.v[j], d.v[j], prob);
      g.v[j] = of.gate;
      u.v[j] = of.up;
      d_prob = __fadd_rn(d_prob, of.prob);
    }
    cuda::StoreFloats<kAligned>(g, d_gate + at, ffn - at);
    cuda::StoreFloats<kAligned>(u, d_gate + ffn + at, ffn - at);
  };
  using RowBatch = Batch<T, kAligned, kBatch>;
  for (int64_t at = RowBegin(); at < ffn; at += kBatch * RowStride()) {
    cuda::ForEachPack(at, ffn, write, RowBatch(gate, at, ffn),
                      RowBatch(gate + ffn, at, ffn), RowBatch(d_out, at, ffn));
  }
  if (args.d_prob == nullptr) return;
  d_prob = cuda::RowSum(d_prob);
  if (threadIdx.x == 0) args.d_prob[row] = d_prob;
}

void Forward(const SwigluForwardArgs& args, device::Stream& stream) {
  if (args.rows == 0) return;
  const bool aligned =
      cuda::PacksAligned(args.ffn, args.gate_up.data, args.out.data);
  cuda::WithFormat(args.out.dtype, aligned, [&](auto type, auto is_aligned) {
    ForwardKernel<decltype(type), is_aligned.value>
        <<<args.rows, cuda::RowThreads(args.ffn, kBatch), 0,
           device::cuda::Handle(stream)>>>(args);
  });
  device::cuda::CheckLaunch("SwigluForward", stream);
}

void Backward(const SwigluBackwardArgs& args, device::Stream& stream) {
  if (args.rows == 0) return;
  const bool aligned = cuda::PacksAligned(args.ffn, args.gate_up.data,
                                          args.d_out.data, args.d_gate_up.data);
  cuda::WithFormat(args.d_gate_up.dtype, aligned,
                   [&](auto type, auto is_aligned) {
                     BackwardKernel<decltype(type), is_aligned.value>
                         <<<args.rows, cuda::RowThreads(args.ffn, kBatch), 0,
                            device::cuda::Handle(stream)>>>(args);
                   });
  device::cuda::CheckLaunch("SwigluBackward", stream);
}

[[maybe_unused]] const bool kForward =
    RegisterCudaForm<&SwigluForward>(&Forward);
[[maybe_unused]] const bool kBackward =
    RegisterCudaForm<&SwigluBackward>(&Backward);

}  // namespace
}  // namespace weft::ops

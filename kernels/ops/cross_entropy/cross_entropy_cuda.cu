// A block a token.
#include <algorithm>
#include <cfloat>
#include <cmath>

#include "kernels/device/cuda/launch.h"
#include "kernels/ops/cross_entropy/cross_entropy.h"
#include "kernels/ops/cuda_form.h"
#include "kernels/ops/math/pack.cuh"

namespace weft::ops {
namespace {

using cuda::Batch;
using cuda::Elements;
using cuda::Floats;
using cuda::ForEachPack;
using cuda::kPack;
using cuda::Pack;
using cuda::RowBegin;
using cuda::RowStride;
using cuda::Widen;

// Packs that a thread loads at once; forward loads the next ones beside.
constexpr int kForwardBatch = 2;
constexpr int kBackwardBatch = 4;

// e^x for x <= 0, with a relative error below 3e-7 + 1e-7 |x|; 0 below -87.
__device__ float ExpOfNegative(float x) {
  constexpr float kLog2E = 1.44269504088896341f;
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x * kLog2E));
  return result;
}

// sum(e^x) = e^max * sum, of the elements seen.
struct ExpSum {
  float max = -FLT_MAX;
  float sum = 0;

  __device__ void Add(const Floats& x) {
    float highest = max;
#pragma unroll
    for (int j = 0; j < kPack; ++j) highest = fmaxf(highest, x.v[j]);
    sum = __fmul_rn(sum, ExpOfNegative(max - highest));
    max = highest;
#pragma unroll
    for (int j = 0; j < kPack; ++j) sum += ExpOfNegative(x.v[j] - max);
  }
};

// What the loss of a token is; without one, `counts` is 0.
struct TokenLoss {
  double loss;
  int64_t counts;
};

template <typename T>
__device__ T MinusInfinity();
template <>
__device__ float MinusInfinity() {
  return -INFINITY;
}
template <>
__device__ Bf16 MinusInfinity() {
  return {0xFF80};
}

// Half as many threads as a block may have: more blocks, of which some wait for
// memory while others compute.
constexpr int kThreads = cuda::kMaxRowThreads / 2;

template <typename T, bool kAligned>
__global__ void __launch_bounds__(kThreads)
    ForwardKernel(const CrossEntropyForwardArgs args, TokenLoss* losses) {
  const int64_t token = blockIdx.x;
  const int64_t vocab = args.vocab;
  const T* logits = Elements<T>(args.logits) + token * vocab;
  const int32_t label = args.labels[token];
  const float label_logit =
      label == kIgnoredLabel ? 0.0f : cuda::Load(logits + label);

  using RowBatch = Batch<T, kAligned, kForwardBatch>;
  const int64_t step = kForwardBatch * RowStride();
  const T absent = MinusInfinity<T>();
  RowBatch next(logits, RowBegin(), vocab, absent);
  ExpSum of_thread;
  const auto add = [&](int64_t, const Pack<T>& pack) {
    of_thread.Add(Widen(pack));
  };
  for (int64_t at = RowBegin(); at < vocab; at += step) {
    const RowBatch batch = next;
    next = RowBatch(logits, at + step, vocab, absent);
    ForEachPack(at, vocab, add, batch);
  }
  const float max = cuda::RowReduce(
      of_thread.max, [](float a, float b) { return fmaxf(a, b); });
  const float sum =
      cuda::RowSum(of_thread.sum * ExpOfNegative(of_thread.max - max));
  if (threadIdx.x != 0) return;
  const double lse = max + log(static_cast<double>(sum));
  args.lse[token] = static_cast<float>(lse);
  losses[token] = label == kIgnoredLabel ? TokenLoss{0, 0}
                                         : TokenLoss{lse - label_logit, 1};
}

// Each thread sums every kMaxRowThreads-th token, then threads are summed.
__global__ void __launch_bounds__(cuda::kMaxRowThreads)
    SumLosses(const TokenLoss* losses, const CrossEntropyForwardArgs args) {
  double loss_sum = 0;
  int64_t loss_tokens = 0;
#pragma unroll 4
  for (int64_t t = threadIdx.x; t < args.tokens; t += blockDim.x) {
    loss_sum += losses[t].loss;
    loss_tokens += losses[t].counts;
  }
  loss_sum = cuda::RowSum(loss_sum);
  loss_tokens = cuda::RowSum(loss_tokens);
  if (threadIdx.x != 0) return;
  *args.loss_sum = loss_sum;
  if (args.loss_tokens != nullptr) *args.loss_tokens = loss_tokens;
}

void Forward(const CrossEntropyForwardArgs& args, device::Stream& stream) {
  const cudaStream_t handle = device::cuda::Handle(stream);
  TokenLoss* losses = nullptr;
  if (args.tokens > 0) {
    losses = static_cast<TokenLoss*>(device::cuda::Workspace(
        stream, args.tokens * static_cast<int64_t>(sizeof(TokenLoss))));
    if (losses == nullptr) return;
    const bool aligned = cuda::PacksAligned(args.vocab, args.logits.data);
    const int threads =
        std::min(cuda::RowThreads(args.vocab, kForwardBatch), kThreads);
    cuda::WithFormat(args.logits.dtype, aligned,
                     [&](auto type, auto is_aligned) {
                       ForwardKernel<decltype(type), is_aligned.value>
                           <<<args.tokens, threads, 0, handle>>>(args, losses);
                     });
    device::cuda::CheckLaunch("CrossEntropyForward", stream);
  }
  SumLosses<<<1, cuda::kMaxRowThreads, 0, handle>>>(losses, args);
  device::cuda::CheckLaunch("CrossEntropyForward", stream);
}

template <typename T, bool kAligned>
__global__ void __launch_bounds__(cuda::kMaxRowThreads)
    BackwardKernel(const CrossEntropyBackwardArgs args) {
  const int64_t token = blockIdx.x;
  const int64_t vocab = args.vocab;
  const T* logits = Elements<T>(args.logits) + token * vocab;
  T* d_logits = Elements<T>(args.d_logits) + token * vocab;
  const int64_t label = args.labels[token];
  const bool ignored = label == kIgnoredLabel;
  const float lse = args.lse[token];
  const float scale =
      args.weight == nullptr ? args.scale : args.scale * *args.weight;
  const auto write = [&](int64_t at, const Pack<T>& pack) {
    Floats p = Widen(pack);
#pragma unroll
    for (int j = 0; j < kPack; ++j) {
      p.v[j] = ignored ? 0.0f : ExpOfNegative(p.v[j] - lse);
    }
    // p - 1 in one piece: subtracting scale from scale * p afterwards would
    // round twice.
    if (label >= at && label < at + kPack) {
#pragma unroll
      for (int j = 0; j < kPack; ++j) {
        if (at + j == label) p.v[j] -= 1.0f;
      }
    }
#pragma unroll
    for (int j = 0; j < kPack; ++j) p.v[j] = __fmul_rn(p.v[j], scale);
    cuda::StoreFloats<kAligned>(p, d_logits + at, vocab - at);
  };
  for (int64_t at = RowBegin(); at < vocab;
       at += kBackwardBatch * RowStride()) {
    ForEachPack(at, vocab, write,
                Batch<T, kAligned, kBackwardBatch>(logits, at, vocab));
  }
}

void Backward(const CrossEntropyBackwardArgs& args, device::Stream& stream) {
  if (args.tokens == 0) return;
  const bool aligned =
      cuda::PacksAligned(args.vocab, args.logits.data, args.d_logits.data);
  cuda::WithFormat(args.logits.dtype, aligned, [&](auto type, auto is_aligned) {
    BackwardKernel<decltype(type), is_aligned.value>
        <<<args.tokens, cuda::RowThreads(args.vocab, kBackwardBatch), 0,
           device::cuda::Handle(stream)>>>(args);
  });
  device::cuda::CheckLaunch("CrossEntropyBackward", stream);
}

[[maybe_unused]] const bool kForward =
    RegisterCudaForm<&CrossEntropyForward>(&Forward);
[[maybe_unused]] const bool kBackward =
    RegisterCudaForm<&CrossEntropyBackward>(&Backward);

}  // namespace
}  // namespace weft::ops

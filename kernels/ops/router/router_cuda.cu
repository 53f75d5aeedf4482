// One warp computes a token: lane l holds experts l, l + 32, ... in registers.
#include <algorithm>

#include "kernels/ops/cuda_form.h"
#include "kernels/ops/math/fold.cuh"
#include "kernels/ops/router/router.h"

namespace weft::ops {
namespace {

constexpr unsigned kAllLanes = 0xFFFFFFFFu;
constexpr int kWarps = 8;  // of a block
constexpr int kThreads = 32 * kWarps;

// Keys order as logits do, both zeros alike; a NaN comes last. kTaken is below
// every key.
constexpr uint32_t kTaken = 0;
constexpr uint32_t kNan = 1;

__device__ uint32_t KeyOf(float logit) {
  if (logit != logit) return kNan;
  const uint32_t bits = __float_as_uint(logit + 0.0f);
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}

__device__ float LogitOf(uint32_t key) {
  if (key == kNan) return __uint_as_float(0x7FC00000u);
  return __uint_as_float((key >> 31) != 0 ? key & 0x7FFFFFFFu : ~key);
}

struct Choice {
  uint32_t key;
  int expert;
};

// The greatest key of the row, of equal ones that of the lowest expert.
template <int kPerLane>
__device__ Choice Greatest(const uint32_t (&keys)[kPerLane]) {
  uint32_t best = keys[0];
#pragma unroll
  for (int i = 1; i < kPerLane; ++i) best = max(best, keys[i]);
  best = __reduce_max_sync(kAllLanes, best);
  unsigned expert = UINT32_MAX;
#pragma unroll
  for (int i = kPerLane - 1; i >= 0; --i) {
    if (keys[i] == best) expert = threadIdx.x % 32 + 32 * i;
  }
  return {best, static_cast<int>(__reduce_min_sync(kAllLanes, expert))};
}

template <int kPerLane>
__device__ void Take(int expert, uint32_t (&keys)[kPerLane]) {
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    if (expert == threadIdx.x % 32 + 32 * i) keys[i] = kTaken;
  }
}

// Softmax of one row, whose greatest logit is `max`: writes the scores and
// returns what e^(logit - max) is multiplied by.
template <int kPerLane>
__device__ float Softmax(const uint32_t (&keys)[kPerLane], float max,
                         int64_t experts, float* scores) {
  float e[kPerLane];
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    e[i] = keys[i] == kTaken ? 0.0f : expf(LogitOf(keys[i]) - max);
    sum += e[i];
  }
  const float scale = 1.0f / cuda::WarpSum(sum);
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int64_t expert = threadIdx.x % 32 + 32 * i;
    if (expert < experts) scores[expert] = e[i] * scale;
  }
  return scale;
}

// The key of one expert of the row.
template <int kPerLane>
__device__ uint32_t KeyAt(int expert, const uint32_t (&keys)[kPerLane]) {
  uint32_t key = 0;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    if (expert / 32 == i) key = keys[i];
  }
  return __shfl_sync(kAllLanes, key, expert % 32);
}

// What says which experts a row goes to, when its logits do not: the given
// ones, or their turn.
struct FixedChoice {
  const int32_t* given;  // [topk] or null
  int64_t first;         // of the turn
  int experts;

  __device__ int operator[](int j) const {
    return given != nullptr ? given[j] : (first + j) % experts;
  }
};

// The greatest key of the experts of a row.
template <int kPerLane>
__device__ uint32_t GreatestOf(const FixedChoice& choice, int topk,
                               const uint32_t (&keys)[kPerLane]) {
  uint32_t greatest = 0;
  for (int j = 0; j < topk; ++j) {
    greatest = max(greatest, KeyAt(choice[j], keys));
  }
  return greatest;
}

// Chooses the experts of a row, counts them and writes their probabilities;
// 32 choices at a time, of which lane j keeps the j-th. `max` is the greatest
// logit, `scale` that of Softmax.
template <int kPerLane>
__device__ void Choose(const RouterForwardArgs& args, int64_t token, float max,
                       float scale, uint32_t (&keys)[kPerLane], int* counts) {
  const RouterConfig& config = args.config;
  const int lane = threadIdx.x % 32;
  const int topk = config.topk;
  int32_t* index = args.topk_index + token * topk;
  float* prob = args.topk_prob + token * topk;
  FixedChoice fixed = {args.given, token * topk,
                       static_cast<int>(config.num_experts)};
  if (fixed.given != nullptr) fixed.given += token * topk;
  if (fixed.given != nullptr && fixed.given[0] < 0) fixed.given = nullptr;
  const bool is_fixed = fixed.given != nullptr || config.balanced;
  // From the greatest of the chosen: a softmax over them alone has a 1.
  if (is_fixed && config.normalize_topk) {
    max = LogitOf(GreatestOf(fixed, topk, keys));
  }
  float sum = 0;
  for (int begin = 0; begin < topk; begin += 32) {
    Choice own = {};
    for (int j = begin; j < topk && j < begin + 32; ++j) {
      Choice next;
      if (is_fixed) {
        next = {KeyAt(fixed[j], keys), fixed[j]};
      } else {
        next = Greatest(keys);
        Take(next.expert, keys);
      }
      if (lane == j - begin) own = next;
    }
    if (begin + lane >= topk) continue;
    const float e = expf(LogitOf(own.key) - max);
    sum += e;
    index[begin + lane] = own.expert;
    prob[begin + lane] = config.normalize_topk ? e : e * scale * config.scaling;
    atomicAdd(&counts[own.expert], 1);
  }
  if (!config.normalize_topk) return;
  const float factor = config.scaling / cuda::WarpSum(sum);
  for (int j = lane; j < topk; j += 32) prob[j] *= factor;
}

// block_counts: [gridDim.x, num_experts]
template <int kPerLane>
__global__ void __launch_bounds__(kThreads)
    Route(RouterForwardArgs args, int* block_counts) {
  extern __shared__ int counts[];
  const int64_t experts = args.config.num_experts;
  for (int e = threadIdx.x; e < experts; e += kThreads) counts[e] = 0;
  __syncthreads();
  const int64_t stride = int64_t{gridDim.x} * kWarps;
  int64_t token = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  for (; token < args.tokens; token += stride) {
    const float* logits = args.logits + token * experts;
    uint32_t keys[kPerLane];
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int64_t expert = threadIdx.x % 32 + 32 * i;
      keys[i] = expert < experts ? KeyOf(logits[expert]) : kTaken;
    }
    const float max = LogitOf(Greatest(keys).key);
    const float scale =
        Softmax(keys, max, experts, args.scores + token * experts);
    Choose(args, token, max, scale, keys, counts);
  }
  __syncthreads();
  for (int e = threadIdx.x; e < experts; e += kThreads) {
    block_counts[blockIdx.x * experts + e] = counts[e];
  }
}

// Adds the gradients of the chosen experts, which lanes hold 32 at a time, to
// the gradients of all.
template <int kPerLane>
__device__ void AddChosen(const int32_t* index, int topk, int begin,
                          float value, float (&d)[kPerLane]) {
  const int lane = threadIdx.x % 32;
  const int own = begin + lane < topk ? index[begin + lane] : 0;
  for (int j = 0; j < 32 && begin + j < topk; ++j) {
    const int expert = __shfl_sync(kAllLanes, own, j);
    const float addend = __shfl_sync(kAllLanes, value, j);
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      if (expert == lane + 32 * i) d[i] += addend;
    }
  }
}

// d l_j = p_j (dp_j - sum(q dp)) with q = p / scaling.
template <int kPerLane>
__device__ void AddNormalizedGrad(const RouterConfig& config,
                                  const int32_t* index, const float* prob,
                                  const float* d_prob, float (&d)[kPerLane]) {
  const int lane = threadIdx.x % 32;
  const int topk = config.topk;
  float dot = 0;
  for (int j = lane; j < topk; j += 32) dot += prob[j] * d_prob[j];
  dot = cuda::WarpSum(dot) / config.scaling;
  for (int begin = 0; begin < topk; begin += 32) {
    const int j = begin + lane;
    const float value = j < topk ? prob[j] * (d_prob[j] - dot) : 0.0f;
    AddChosen(index, topk, begin, value, d);
  }
}

// From the gradient of the scores to that of the logits, in place:
// d l = s (ds - sum(s ds)).
template <int kPerLane>
__device__ void SoftmaxGrad(const float* scores, int64_t experts,
                            float (&d)[kPerLane]) {
  float s[kPerLane];
  float dot = 0;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int64_t expert = threadIdx.x % 32 + 32 * i;
    s[i] = expert < experts ? scores[expert] : 0.0f;
    dot += s[i] * d[i];
  }
  dot = cuda::WarpSum(dot);
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) d[i] = s[i] * (d[i] - dot);
}

template <int kPerLane>
__global__ void __launch_bounds__(kThreads) RouteBack(RouterBackwardArgs args) {
  const RouterConfig& config = args.config;
  const int64_t experts = config.num_experts;
  const int lane = threadIdx.x % 32;
  const int64_t stride = int64_t{gridDim.x} * kWarps;
  int64_t token = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  for (; token < args.tokens; token += stride) {
    const int32_t* index = args.topk_index + token * config.topk;
    const float* d_prob = args.d_topk_prob + token * config.topk;
    float d[kPerLane];
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int64_t expert = lane + 32 * i;
      const bool given = args.d_scores != nullptr && expert < experts;
      d[i] = given ? args.d_scores[token * experts + expert] : 0.0f;
    }
    for (int begin = 0; !config.normalize_topk && begin < config.topk;
         begin += 32) {
      const int j = begin + lane;
      const float value = j < config.topk ? d_prob[j] * config.scaling : 0.0f;
      AddChosen(index, config.topk, begin, value, d);
    }
    if (args.d_scores != nullptr || !config.normalize_topk) {
      SoftmaxGrad(args.scores + token * experts, experts, d);
    }
    if (config.normalize_topk) {
      AddNormalizedGrad(config, index, args.topk_prob + token * config.topk,
                        d_prob, d);
    }
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int64_t expert = lane + 32 * i;
      if (expert < experts) args.d_logits[token * experts + expert] = d[i];
    }
  }
}

// Calls f with how many experts a lane holds, as a constant.
template <typename F>
void WithExpertsPerLane(int64_t experts, device::Stream& stream, F&& f) {
  const int64_t needed = cuda::CeilDiv(experts, 32);
  if (needed <= 1) return f(std::integral_constant<int, 1>());
  if (needed <= 2) return f(std::integral_constant<int, 2>());
  if (needed <= 4) return f(std::integral_constant<int, 4>());
  if (needed <= 8) return f(std::integral_constant<int, 8>());
  if (needed <= 16) return f(std::integral_constant<int, 16>());
  if (needed <= 128) return f(std::integral_constant<int, 128>());
  device::cuda::Fail("the router has more than 4096 experts", stream);
}

int64_t Blocks(int64_t tokens, device::Stream& stream) {
  const int64_t resident = int64_t{8} * device::cuda::SmCount(stream);
  return std::clamp<int64_t>(cuda::CeilDiv(tokens, kWarps), 1, resident);
}

void Forward(const RouterForwardArgs& args, device::Stream& stream) {
  const int64_t experts = args.config.num_experts;
  const int64_t blocks = Blocks(args.tokens, stream);
  auto* block_counts = static_cast<int*>(
      device::cuda::Workspace(stream, blocks * experts * sizeof(int)));
  if (block_counts == nullptr) return;
  WithExpertsPerLane(experts, stream, [&](auto per_lane) {
    Route<per_lane.value><<<blocks, kThreads, experts * sizeof(int),
                            device::cuda::Handle(stream)>>>(args, block_counts);
  });
  device::cuda::CheckLaunch("RouterForward", stream);
  cuda::SumRows(block_counts, 1, blocks, experts, blocks, args.counts, stream);
}

void Backward(const RouterBackwardArgs& args, device::Stream& stream) {
  if (args.tokens == 0) return;
  WithExpertsPerLane(args.config.num_experts, stream, [&](auto per_lane) {
    RouteBack<per_lane.value><<<Blocks(args.tokens, stream), kThreads, 0,
                                device::cuda::Handle(stream)>>>(args);
  });
  device::cuda::CheckLaunch("RouterBackward", stream);
}

[[maybe_unused]] const bool kForward =
    RegisterCudaForm<&RouterForward>(&Forward);
[[maybe_unused]] const bool kBackward =
    RegisterCudaForm<&RouterBackward>(&Backward);

}  // namespace
}  // namespace weft::ops

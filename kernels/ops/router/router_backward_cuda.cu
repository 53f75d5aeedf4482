#include "kernels/ops/cuda_form.h"
#include "kernels/ops/router/router.h"
#include "kernels/ops/router/warp_rows_cuda.cuh"

namespace weft::ops {
namespace {

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

// The sigmoids' part of RouteBack: see SigmoidRowGrad of router_cpu.cc.
template <int kPerLane>
__device__ void SigmoidRowGrad(const RouterConfig& config, bool has_d_scores,
                               const float* scores, const int32_t* index,
                               const float* prob, const float* d_prob,
                               float (&d)[kPerLane]) {
  const int lane = threadIdx.x % 32;
  float s[kPerLane];
  float sum = 0, dot = 0;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int64_t expert = lane + 32 * i;
    s[i] = expert < config.num_experts ? scores[expert] : 0.0f;
    sum += s[i];
    dot += s[i] * d[i];
  }
  if (has_d_scores) {
    const float scale = 1.0f / (cuda::WarpSum(sum) + kLeastSum);
    dot = cuda::WarpSum(dot) * scale;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) d[i] = (d[i] - dot) * scale;
  }
  float of_chosen = 0, chosen = 0;
  for (int j = lane; config.normalize_topk && j < config.topk; j += 32) {
    of_chosen += prob[j] * d_prob[j];
    chosen += scores[index[j]];
  }
  of_chosen = cuda::WarpSum(of_chosen);
  chosen = cuda::WarpSum(chosen);
  const float factor =
      config.normalize_topk ? 1.0f / (chosen + kLeastSum) : 1.0f;
  for (int begin = 0; begin < config.topk; begin += 32) {
    const int j = begin + lane;
    const float value = j < config.topk
                            ? (d_prob[j] * config.scaling - of_chosen) * factor
                            : 0.0f;
    AddChosen(index, config.topk, begin, value, d);
  }
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) d[i] *= s[i] * (1.0f - s[i]);
}

// The same of a softmax.
template <int kPerLane>
__device__ void SoftmaxRowGrad(const RouterConfig& config, bool has_d_scores,
                               const float* scores, const int32_t* index,
                               const float* prob, const float* d_prob,
                               float (&d)[kPerLane]) {
  for (int begin = 0; !config.normalize_topk && begin < config.topk;
       begin += 32) {
    const int j = begin + static_cast<int>(threadIdx.x % 32);
    const float value = j < config.topk ? d_prob[j] * config.scaling : 0.0f;
    AddChosen(index, config.topk, begin, value, d);
  }
  if (has_d_scores || !config.normalize_topk) {
    SoftmaxGrad(scores, config.num_experts, d);
  }
  if (config.normalize_topk) {
    AddNormalizedGrad(config, index, prob, d_prob, d);
  }
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
    const bool has_d_scores = args.d_scores != nullptr;
    const float* scores = args.scores + token * experts;
    const float* prob = args.topk_prob + token * config.topk;
    if (config.score == RouterScore::kSigmoid) {
      SigmoidRowGrad(config, has_d_scores, scores, index, prob, d_prob, d);
    } else {
      SoftmaxRowGrad(config, has_d_scores, scores, index, prob, d_prob, d);
    }
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int64_t expert = lane + 32 * i;
      if (expert < experts) args.d_logits[token * experts + expert] = d[i];
    }
  }
}

void Backward(const RouterBackwardArgs& args, device::Stream& stream) {
  if (args.tokens == 0) return;
  WithExpertsPerLane(args.config.num_experts, stream, [&](auto per_lane) {
    RouteBack<per_lane.value><<<Blocks(args.tokens, stream), kThreads, 0,
                                device::cuda::Handle(stream)>>>(args);
  });
  device::cuda::CheckLaunch("RouterBackward", stream);
}

[[maybe_unused]] const bool kRegistered =
    RegisterCudaForm<&RouterBackward>(&Backward);

}  // namespace
}  // namespace weft::ops

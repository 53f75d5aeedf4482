// One warp computes a token: lane l holds experts l, l + 32, ... in registers.
#include "kernels/ops/cuda_form.h"
#include "kernels/ops/math/fold.cuh"
#include "kernels/ops/math/sigmoid.cuh"
#include "kernels/ops/router/router.h"
#include "kernels/ops/router/warp_rows_cuda.cuh"

namespace weft::ops {
namespace {

// Loops over many experts of a lane are not unrolled, for the compiler's sake.
template <int kPerLane>
constexpr int kUnroll = kPerLane <= 16 ? kPerLane : 4;

// Keys order as choice values do, both zeros alike; a NaN comes last. kTaken is
// below every key.
constexpr uint32_t kTaken = 0;
constexpr uint32_t kNan = 1;

__device__ uint32_t KeyOf(float value) {
  if (value != value) return kNan;
  const uint32_t bits = __float_as_uint(value + 0.0f);
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}

__device__ float ValueOf(uint32_t key) {
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
#pragma unroll(kUnroll <kPerLane>)
  for (int i = 1; i < kPerLane; ++i) best = max(best, keys[i]);
  best = __reduce_max_sync(kAllLanes, best);
  unsigned expert = UINT32_MAX;
#pragma unroll(kUnroll <kPerLane>)
  for (int i = kPerLane - 1; i >= 0; --i) {
    if (keys[i] == best) expert = threadIdx.x % 32 + 32 * i;
  }
  return {best, static_cast<int>(__reduce_min_sync(kAllLanes, expert))};
}

template <int kPerLane>
__device__ void Take(int expert, uint32_t (&keys)[kPerLane]) {
#pragma unroll(kUnroll <kPerLane>)
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
#pragma unroll(kUnroll <kPerLane>)
  for (int i = 0; i < kPerLane; ++i) {
    e[i] = keys[i] == kTaken ? 0.0f : expf(ValueOf(keys[i]) - max);
    sum += e[i];
  }
  const float scale = 1.0f / cuda::WarpSum(sum);
#pragma unroll(kUnroll <kPerLane>)
  for (int i = 0; i < kPerLane; ++i) {
    const int64_t expert = threadIdx.x % 32 + 32 * i;
    if (expert < experts) scores[expert] = e[i] * scale;
  }
  return scale;
}

// Sigmoids of one row: writes the scores, and turns keys into those of scores.
template <int kPerLane>
__device__ void Sigmoids(int64_t experts, float* scores,
                         uint32_t (&keys)[kPerLane]) {
#pragma unroll(kUnroll <kPerLane>)
  for (int i = 0; i < kPerLane; ++i) {
    const int64_t expert = threadIdx.x % 32 + 32 * i;
    if (expert >= experts) continue;
    const float score = cuda::Sigmoid(ValueOf(keys[i]));
    scores[expert] = score;
    keys[i] = KeyOf(score);
  }
  __syncwarp();
}

template <int kPerLane>
__device__ void AddBias(const float* bias, int64_t experts,
                        uint32_t (&keys)[kPerLane]) {
#pragma unroll(kUnroll <kPerLane>)
  for (int i = 0; i < kPerLane; ++i) {
    const int64_t expert = threadIdx.x % 32 + 32 * i;
    if (expert < experts) keys[i] = KeyOf(ValueOf(keys[i]) + bias[expert]);
  }
}

// Writes the experts of the `topk` greatest keys.
template <int kPerLane>
__device__ void WriteGreatest(const uint32_t (&keys)[kPerLane], int topk,
                              int32_t* index) {
  uint32_t left[kPerLane];
#pragma unroll(kUnroll <kPerLane>)
  for (int i = 0; i < kPerLane; ++i) left[i] = keys[i];
  for (int j = 0; j < topk; ++j) {
    const int expert = Greatest(left).expert;
    Take(expert, left);
    if (threadIdx.x % 32 == 0) index[j] = expert;
  }
}

// The sum of the largest scores of the experts of one group, in every lane.
// `score_of` turns a key into a score.
template <int kPerLane, typename ScoreOf>
__device__ float GroupScore(const RouterConfig& config, int group,
                            ScoreOf score_of,
                            const uint32_t (&keys)[kPerLane]) {
  const int size = config.num_experts / config.groups;
  uint32_t left[kPerLane];
#pragma unroll(kUnroll <kPerLane>)
  for (int i = 0; i < kPerLane; ++i) {
    const int expert = threadIdx.x % 32 + 32 * i;
    left[i] = expert / size == group ? keys[i] : kTaken;
  }
  float sum = 0;
  for (int j = 0; j < config.group_scores; ++j) {
    const Choice next = Greatest(left);
    Take(next.expert, left);
    sum += score_of(next.key);
  }
  return sum;
}

// Takes the experts of all groups but the best.
template <int kPerLane, typename ScoreOf>
__device__ void KeepGroups(const RouterConfig& config, ScoreOf score_of,
                           uint32_t (&keys)[kPerLane]) {
  const int lane = threadIdx.x % 32;
  const int size = config.num_experts / config.groups;
  uint32_t groups[kPerLane] = {};
  for (int group = 0; group < config.groups; ++group) {
    const uint32_t key = KeyOf(GroupScore(config, group, score_of, keys));
#pragma unroll(kUnroll <kPerLane>)
    for (int i = 0; i < kPerLane; ++i) {
      if (group == lane + 32 * i) groups[i] = key;
    }
  }
  uint32_t kept[kPerLane] = {};
  for (int j = 0; j < config.kept_groups; ++j) {
    const int group = Greatest(groups).expert;
    Take(group, groups);
#pragma unroll(kUnroll <kPerLane>)
    for (int i = 0; i < kPerLane; ++i) {
      if ((lane + 32 * i) / size == group) kept[i] = keys[i];
    }
  }
#pragma unroll(kUnroll <kPerLane>)
  for (int i = 0; i < kPerLane; ++i) keys[i] = kept[i];
}

// The key of one expert of the row.
template <int kPerLane>
__device__ uint32_t KeyAt(int expert, const uint32_t (&keys)[kPerLane]) {
  uint32_t key = 0;
#pragma unroll(kUnroll <kPerLane>)
  for (int i = 0; i < kPerLane; ++i) {
    if (expert / 32 == i) key = keys[i];
  }
  return __shfl_sync(kAllLanes, key, expert % 32);
}

// What says which experts a row goes to, when its scores do not: the given
// ones, or their turn.
struct FixedChoice {
  const int32_t* given;  // [topk] or null
  bool balanced;
  int64_t first;  // of the turn
  int experts;

  __device__ FixedChoice(const RouterForwardArgs& args, int64_t token)
      : given(args.given),
        balanced(args.config.balanced),
        first(token * args.config.topk),
        experts(args.config.num_experts) {
    if (given != nullptr) given += first;
    if (given != nullptr && given[0] < 0) given = nullptr;
  }

  // Whether there is one.
  __device__ bool IsSaid() const { return given != nullptr || balanced; }
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
// 32 choices at a time, of which lane j keeps the j-th. `part_of` is what a
// choice's probability is a multiple of, `scale` the factor that makes that its
// score.
template <int kPerLane, typename PartOf>
__device__ void Choose(const RouterForwardArgs& args, int64_t token,
                       const FixedChoice& fixed, float scale, PartOf part_of,
                       uint32_t (&keys)[kPerLane], int* counts) {
  const RouterConfig& config = args.config;
  const int lane = threadIdx.x % 32;
  const int topk = config.topk;
  int32_t* index = args.topk_index + token * topk;
  float* prob = args.topk_prob + token * topk;
  float sum = 0;
  for (int begin = 0; begin < topk; begin += 32) {
    Choice own = {};
    for (int j = begin; j < topk && j < begin + 32; ++j) {
      Choice next;
      if (fixed.IsSaid()) {
        next = {KeyAt(fixed[j], keys), fixed[j]};
      } else {
        next = Greatest(keys);
        Take(next.expert, keys);
      }
      if (lane == j - begin) own = next;
    }
    if (begin + lane >= topk) continue;
    const float part = part_of(own);
    sum += part;
    index[begin + lane] = own.expert;
    prob[begin + lane] =
        config.normalize_topk ? part : part * scale * config.scaling;
    atomicAdd(&counts[own.expert], 1);
  }
  if (!config.normalize_topk) return;
  const float least = config.score == RouterScore::kSigmoid ? kLeastSum : 0.0f;
  const float factor = config.scaling / (cuda::WarpSum(sum) + least);
  for (int j = lane; j < topk; j += 32) prob[j] *= factor;
}

// Without bias and groups.
template <int kPerLane>
__device__ void WritePlain(const RouterForwardArgs& args, int64_t token,
                           const uint32_t (&keys)[kPerLane]) {
  if (args.plain_index == nullptr) return;
  WriteGreatest(keys, args.config.topk,
                args.plain_index + token * args.config.topk);
}

// Routes one token, of whose logits `keys` are the keys.
template <int kPerLane>
__device__ void RouteBySigmoid(const RouterForwardArgs& args, int64_t token,
                               uint32_t (&keys)[kPerLane], int* counts) {
  const RouterConfig& config = args.config;
  float* scores = args.scores + token * config.num_experts;
  const FixedChoice fixed(args, token);
  Sigmoids(config.num_experts, scores, keys);
  WritePlain(args, token, keys);
  if (args.bias != nullptr) AddBias(args.bias, config.num_experts, keys);
  const auto value = [](uint32_t key) { return ValueOf(key); };
  if (config.groups > 0 && !fixed.IsSaid()) KeepGroups(config, value, keys);
  const auto score = [&](const Choice& choice) {
    return scores[choice.expert];
  };
  Choose(args, token, fixed, 1.0f, score, keys, counts);
}

template <int kPerLane>
__device__ void RouteBySoftmax(const RouterForwardArgs& args, int64_t token,
                               uint32_t (&keys)[kPerLane], int* counts) {
  const RouterConfig& config = args.config;
  const FixedChoice fixed(args, token);
  float max = ValueOf(Greatest(keys).key);
  const float scale = Softmax(keys, max, config.num_experts,
                              args.scores + token * config.num_experts);
  WritePlain(args, token, keys);
  const auto score = [&](uint32_t key) {
    return expf(ValueOf(key) - max) * scale;
  };
  if (config.groups > 0 && !fixed.IsSaid()) KeepGroups(config, score, keys);
  // From the greatest of the chosen: a softmax over them alone has a 1.
  if (config.normalize_topk && (fixed.IsSaid() || config.groups > 0)) {
    max = ValueOf(fixed.IsSaid() ? GreatestOf(fixed, config.topk, keys)
                                 : Greatest(keys).key);
  }
  const auto exponential = [&](const Choice& choice) {
    return expf(ValueOf(choice.key) - max);
  };
  Choose(args, token, fixed, scale, exponential, keys, counts);
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
#pragma unroll(kUnroll <kPerLane>)
    for (int i = 0; i < kPerLane; ++i) {
      const int64_t expert = threadIdx.x % 32 + 32 * i;
      keys[i] = expert < experts ? KeyOf(logits[expert]) : kTaken;
    }
    if (args.config.score == RouterScore::kSigmoid) {
      RouteBySigmoid(args, token, keys, counts);
    } else {
      RouteBySoftmax(args, token, keys, counts);
    }
  }
  __syncthreads();
  for (int e = threadIdx.x; e < experts; e += kThreads) {
    block_counts[blockIdx.x * experts + e] = counts[e];
  }
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

[[maybe_unused]] const bool kRegistered =
    RegisterCudaForm<&RouterForward>(&Forward);

}  // namespace
}  // namespace weft::ops

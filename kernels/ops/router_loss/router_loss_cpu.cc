#include <algorithm>
#include <cmath>

#include "kernels/ops/cuda_form.h"
#include "kernels/ops/math/vec_math.h"
#include "kernels/ops/router_loss/router_loss.h"

namespace weft::ops {
namespace {

// log(sum(exp(x))) of one row, in fp64.
double LogSumExp(const float* x, int64_t count) {
  const double max = *std::max_element(x, x + count);
  double sum = 0;
  for (int64_t e = 0; e < count; ++e) sum += std::exp(x[e] - max);
  return max + std::log(sum);
}

// sum_e counts[e] * sum_t P_te of one group of tokens.
double GroupSum(const GroupBalanceLossArgs& args, const float* scores,
                const int32_t* counts) {
  double sum = 0;
  for (int64_t t = 0; t < args.tokens; ++t) {
    for (int64_t e = 0; e < args.num_experts; ++e) {
      sum += static_cast<double>(counts[e]) * *scores++;
    }
  }
  return sum;
}

float Exp(float x) { return simd::Exp(simd::Splat(x))[0]; }

bool IsValid(const int32_t* valid, int64_t token) {
  return valid == nullptr || valid[token] != 0;
}

double Weighed(double factor, const float* weight) {
  return weight == nullptr ? factor : factor * *weight;
}

}  // namespace

void LossInputs(const LossInputsArgs& args, device::Stream& stream) {
  if (RunOnCuda<&LossInputs>(args, stream)) return;
  for (int64_t t = 0; t < args.tokens; ++t) {
    const bool is_valid = IsValid(args.valid, t);
    const float* scores = args.scores + t * args.num_experts;
    float sum = args.normalize ? 1e-20f : 1.0f;
    for (int64_t e = 0; args.normalize && e < args.num_experts; ++e) {
      sum += scores[e];
    }
    for (int64_t e = 0; e < args.num_experts; ++e) {
      args.out_scores[t * args.num_experts + e] =
          is_valid ? scores[e] / sum : 0.0f;
    }
    for (int64_t j = t * args.topk;
         args.out_index != nullptr && j < (t + 1) * args.topk; ++j) {
      args.out_index[j] = is_valid ? args.index[j] : -1;
    }
  }
}

void ScoreSums(const ScoreSumsArgs& args, device::Stream& stream) {
  if (RunOnCuda<&ScoreSums>(args, stream)) return;
  std::fill(args.sums, args.sums + args.num_experts, 0.0);
  const float* scores = args.scores;
  for (int64_t t = 0; t < args.tokens; ++t) {
    for (int64_t e = 0; e < args.num_experts; ++e) args.sums[e] += *scores++;
  }
}

void CountsToFloats(const CountsToFloatsArgs& args, device::Stream& stream) {
  if (RunOnCuda<&CountsToFloats>(args, stream)) return;
  std::copy(args.x, args.x + args.count, args.out);
  std::fill(args.out + args.count, args.out + args.padded, 0.0f);
}

void BalanceLoss(const BalanceLossArgs& args, device::Stream& stream) {
  if (RunOnCuda<&BalanceLoss>(args, stream)) return;
  double sum = 0;
  for (int64_t e = 0; e < args.num_experts; ++e) {
    sum += args.counts[e] * args.sums[e];
  }
  *args.loss = Weighed(args.factor, args.weight) * sum;
}

void BalanceGrad(const BalanceGradArgs& args, device::Stream& stream) {
  if (RunOnCuda<&BalanceGrad>(args, stream)) return;
  const double factor = Weighed(args.factor, args.weight);
  float* d_scores = args.d_scores;
  for (int64_t t = 0; t < args.tokens; ++t) {
    for (int64_t e = 0; e < args.num_experts; ++e, ++d_scores) {
      const float grad = IsValid(args.valid, t)
                             ? static_cast<float>(factor * args.counts[e])
                             : 0.0f;
      *d_scores = args.accumulate ? *d_scores + grad : grad;
    }
  }
}

void GroupBalanceLoss(const GroupBalanceLossArgs& args,
                      device::Stream& stream) {
  if (RunOnCuda<&GroupBalanceLoss>(args, stream)) return;
  std::fill(args.counts, args.counts + args.groups * args.num_experts, 0);
  double sum = 0;
  for (int64_t g = 0; g < args.groups; ++g) {
    int32_t* counts = args.counts + g * args.num_experts;
    const int32_t* index = args.topk_index + g * args.tokens * args.topk;
    for (int64_t i = 0; i < args.tokens * args.topk; ++i) {
      if (index[i] >= 0) ++counts[index[i]];
    }
    sum += GroupSum(args, args.scores + g * args.tokens * args.num_experts,
                    counts);
  }
  *args.loss = Weighed(args.factor, args.weight) * sum;
}

void GroupBalanceGrad(const GroupBalanceGradArgs& args,
                      device::Stream& stream) {
  if (RunOnCuda<&GroupBalanceGrad>(args, stream)) return;
  const double factor = Weighed(args.factor, args.weight);
  float* d_scores = args.d_scores;
  for (int64_t g = 0; g < args.groups; ++g) {
    const int32_t* counts = args.counts + g * args.num_experts;
    for (int64_t t = 0; t < args.tokens; ++t) {
      for (int64_t e = 0; e < args.num_experts; ++e, ++d_scores) {
        const float grad = IsValid(args.valid, g * args.tokens + t)
                               ? static_cast<float>(factor * counts[e])
                               : 0.0f;
        *d_scores = args.accumulate ? *d_scores + grad : grad;
      }
    }
  }
}

void ZLoss(const ZLossArgs& args, device::Stream& stream) {
  if (RunOnCuda<&ZLoss>(args, stream)) return;
  double sum = 0;
  for (int64_t t = 0; t < args.tokens; ++t) {
    const double lse =
        LogSumExp(args.logits + t * args.num_experts, args.num_experts);
    args.lse[t] = static_cast<float>(lse);
    if (IsValid(args.valid, t)) sum += lse * lse;
  }
  *args.loss = Weighed(args.factor, args.weight) * sum;
}

void ZGrad(const ZGradArgs& args, device::Stream& stream) {
  if (RunOnCuda<&ZGrad>(args, stream)) return;
  const double factor = Weighed(args.factor, args.weight);
  for (int64_t t = 0; t < args.tokens; ++t) {
    if (!IsValid(args.valid, t)) continue;
    const float lse = args.lse[t];
    const float scale = static_cast<float>(factor * 2 * lse);
    for (int64_t i = t * args.num_experts; i < (t + 1) * args.num_experts;
         ++i) {
      args.d_logits[i] +=
          scale *
          (args.scores != nullptr ? args.scores[i] : Exp(args.logits[i] - lse));
    }
  }
}

}  // namespace weft::ops

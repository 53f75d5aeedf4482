#include <algorithm>
#include <cstring>

#include "kernels/ops/cuda_form.h"
#include "kernels/ops/math/simd.h"
#include "kernels/ops/math/vec_math.h"
#include "kernels/ops/router/router.h"

namespace weft::ops {
namespace {

using simd::F8;

// Softmax of one row over all experts.
void Softmax(const float* logits, int64_t count, float* scores) {
  F8 max8 = simd::Splat(logits[0]);
  simd::ForEach8(count, [&](int64_t i, auto lanes) {
    max8 = simd::Max(max8, simd::Load(logits + i, lanes, logits[0]));
  });
  const float max = simd::MaxLanes(max8);
  F8 sums = {};
  simd::ForEach8(count, [&](int64_t i, auto lanes) {
    const F8 e = simd::Exp(simd::Load(logits + i, lanes) - max);
    sums += simd::Keep(e, lanes);
    simd::Store(scores + i, e, lanes);
  });
  const float scale = 1.0f / simd::SumLanes(sums);
  simd::ForEach8(count, [&](int64_t i, auto lanes) {
    simd::Store(scores + i, simd::Load(scores + i, lanes) * scale, lanes);
  });
}

// Whether a row puts expert `a` before expert `b`.
bool ComesBefore(const float* logits, int64_t a, int64_t b) {
  return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
}

// The `topk` first experts of a row, by insertion into a sorted list. Always
// yields distinct valid indices, even of logits that are not numbers.
void SelectTopk(const float* logits, int64_t count, int64_t topk,
                int32_t* index) {
  int64_t chosen = 0;
  for (int64_t e = 0; e < count; ++e) {
    if (chosen == topk) {
      if (!ComesBefore(logits, e, index[topk - 1])) continue;
      --chosen;
    }
    int64_t place = chosen++;
    while (place > 0 && ComesBefore(logits, e, index[place - 1])) {
      index[place] = index[place - 1];
      --place;
    }
    index[place] = static_cast<int32_t>(e);
  }
}

// The experts of one token.
void ChooseExperts(const RouterForwardArgs& args, int64_t token,
                   int32_t* index) {
  const int64_t experts = args.config.num_experts;
  const int64_t topk = args.config.topk;
  const int32_t* given =
      args.given == nullptr ? nullptr : args.given + token * topk;
  if (given != nullptr && given[0] >= 0) {
    std::copy_n(given, topk, index);
  } else if (args.config.balanced) {
    for (int64_t j = 0; j < topk; ++j) {
      index[j] = static_cast<int32_t>((token * topk + j) % experts);
    }
  } else {
    SelectTopk(args.logits + token * experts, experts, topk, index);
  }
}

// Probabilities of the chosen experts of one row.
void ChosenProbs(const RouterConfig& config, const float* logits,
                 const float* scores, const int32_t* index, float* prob) {
  if (!config.normalize_topk) {
    for (int64_t j = 0; j < config.topk; ++j) {
      prob[j] = scores[index[j]] * config.scaling;
    }
    return;
  }
  // From the logits again: scores of a far smaller chosen expert than the
  // largest would have lost digits to underflow.
  float max = logits[index[0]];
  for (int64_t j = 1; j < config.topk; ++j) {
    max = std::max(max, logits[index[j]]);
  }
  float sum = 0;
  for (int64_t j = 0; j < config.topk; ++j) {
    prob[j] = simd::Exp(simd::Splat(logits[index[j]] - max))[0];
    sum += prob[j];
  }
  const float scale = config.scaling / sum;
  for (int64_t j = 0; j < config.topk; ++j) prob[j] *= scale;
}

// d_logits of one row when the probabilities are the softmax over the chosen:
// d l_j = p_j (dp_j - sum(q dp)) with q = p / scaling.
void AddNormalizedGrad(const RouterConfig& config, const int32_t* index,
                       const float* prob, const float* d_prob,
                       float* d_logits) {
  float dot = 0;
  for (int64_t j = 0; j < config.topk; ++j) dot += prob[j] * d_prob[j];
  dot /= config.scaling;
  for (int64_t j = 0; j < config.topk; ++j) {
    d_logits[index[j]] += prob[j] * (d_prob[j] - dot);
  }
}

// d_logits of one row from the gradient of its scores (in d_logits on entry):
// d l = s (ds - sum(s ds)).
void SoftmaxGrad(const float* scores, int64_t count, float* d_logits) {
  F8 dots = {};
  simd::ForEach8(count, [&](int64_t i, auto lanes) {
    dots += simd::Load(scores + i, lanes) * simd::Load(d_logits + i, lanes);
  });
  const float dot = simd::SumLanes(dots);
  simd::ForEach8(count, [&](int64_t i, auto lanes) {
    const F8 ds = simd::Load(d_logits + i, lanes);
    simd::Store(d_logits + i, simd::Load(scores + i, lanes) * (ds - dot),
                lanes);
  });
}

}  // namespace

void RouterForward(const RouterForwardArgs& args, device::Stream& stream) {
  if (RunOnCuda<&RouterForward>(args, stream)) return;
  const int64_t experts = args.config.num_experts;
  const int64_t topk = args.config.topk;
  std::memset(args.counts, 0, experts * sizeof(int32_t));
  for (int64_t token = 0; token < args.tokens; ++token) {
    const float* logits = args.logits + token * experts;
    float* scores = args.scores + token * experts;
    int32_t* index = args.topk_index + token * topk;
    Softmax(logits, experts, scores);
    ChooseExperts(args, token, index);
    ChosenProbs(args.config, logits, scores, index,
                args.topk_prob + token * topk);
    for (int64_t j = 0; j < topk; ++j) ++args.counts[index[j]];
  }
}

void RouterBackward(const RouterBackwardArgs& args, device::Stream& stream) {
  if (RunOnCuda<&RouterBackward>(args, stream)) return;
  const RouterConfig& config = args.config;
  const int64_t experts = config.num_experts;
  for (int64_t token = 0; token < args.tokens; ++token) {
    const float* scores = args.scores + token * experts;
    const int32_t* index = args.topk_index + token * config.topk;
    const float* d_prob = args.d_topk_prob + token * config.topk;
    float* d_logits = args.d_logits + token * experts;
    if (args.d_scores != nullptr) {
      std::memcpy(d_logits, args.d_scores + token * experts,
                  experts * sizeof(float));
    } else {
      std::memset(d_logits, 0, experts * sizeof(float));
    }
    if (!config.normalize_topk) {
      for (int64_t j = 0; j < config.topk; ++j) {
        d_logits[index[j]] += d_prob[j] * config.scaling;
      }
    }
    if (args.d_scores != nullptr || !config.normalize_topk) {
      SoftmaxGrad(scores, experts, d_logits);
    }
    if (config.normalize_topk) {
      AddNormalizedGrad(config, index, args.topk_prob + token * config.topk,
                        d_prob, d_logits);
    }
  }
}

}  // namespace weft::ops

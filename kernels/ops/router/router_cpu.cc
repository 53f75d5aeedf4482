#include <algorithm>
#include <cstring>

#include "kernels/ops/cuda_form.h"
#include "kernels/ops/math/simd.h"
#include "kernels/ops/math/vec_math.h"
#include "kernels/ops/router/router.h"

namespace weft::ops {
namespace {

using simd::F8;

constexpr int64_t kMaxExperts = 4096;

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

void Sigmoids(const float* logits, int64_t count, float* scores) {
  simd::ForEach8(count, [&](int64_t i, auto lanes) {
    simd::Store(scores + i, simd::Sigmoid(simd::Load(logits + i, lanes)),
                lanes);
  });
}

// Whether a row puts expert `a` before expert `b`.
bool ComesBefore(const float* values, int64_t a, int64_t b) {
  return values[a] > values[b] || (values[a] == values[b] && a < b);
}

// Inserts experts [begin, end) of a row into the sorted list of the first
// `topk`, which has `chosen`; returns how many it has then. Entries are
// distinct and valid even of values that are not numbers.
int64_t Insert(const float* values, int64_t begin, int64_t end, int64_t topk,
               int64_t chosen, int32_t* index) {
  for (int64_t e = begin; e < end; ++e) {
    if (chosen == topk) {
      if (!ComesBefore(values, e, index[topk - 1])) continue;
      --chosen;
    }
    int64_t place = chosen++;
    while (place > 0 && ComesBefore(values, e, index[place - 1])) {
      index[place] = index[place - 1];
      --place;
    }
    index[place] = static_cast<int32_t>(e);
  }
  return chosen;
}

// The sum of the largest scores of experts [begin, end).
float GroupScore(const RouterConfig& config, const float* scores, int64_t begin,
                 int64_t end) {
  int32_t best[kMaxExperts];
  Insert(scores, begin, end, config.group_scores, 0, best);
  float sum = 0;
  for (int64_t i = 0; i < config.group_scores; ++i) sum += scores[best[i]];
  return sum;
}

// Chooses among the experts of the best groups. `scores` are what groups are
// judged by.
void SelectInGroups(const RouterConfig& config, const float* values,
                    const float* scores, int32_t* index) {
  const int64_t size = config.num_experts / config.groups;
  float group_scores[kMaxExperts];
  int32_t kept[kMaxExperts];
  for (int64_t g = 0; g < config.groups; ++g) {
    group_scores[g] = GroupScore(config, scores, g * size, (g + 1) * size);
  }
  Insert(group_scores, 0, config.groups, config.kept_groups, 0, kept);
  int64_t chosen = 0;
  for (int64_t i = 0; i < config.kept_groups; ++i) {
    const int64_t begin = kept[i] * size;
    chosen = Insert(values, begin, begin + size, config.topk, chosen, index);
  }
}

// Chooses the experts of one row by its scores.
void SelectByScores(const RouterForwardArgs& args, const float* logits,
                    const float* scores, int32_t* index) {
  const RouterConfig& config = args.config;
  const bool softmax = config.score == RouterScore::kSoftmax;
  const float* values = softmax ? logits : scores;
  float biased[kMaxExperts];
  if (args.bias != nullptr) {
    for (int64_t e = 0; e < config.num_experts; ++e) {
      biased[e] = scores[e] + args.bias[e];
    }
    values = biased;
  }
  if (config.groups == 0) {
    Insert(values, 0, config.num_experts, config.topk, 0, index);
  } else {
    SelectInGroups(config, values, softmax ? scores : values, index);
  }
}

// The experts of one token.
void ChooseExperts(const RouterForwardArgs& args, int64_t token,
                   const float* scores, int32_t* index) {
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
    SelectByScores(args, args.logits + token * experts, scores, index);
  }
}

// What is added to a sum of sigmoids that something is divided by.
constexpr float kLeastSum = 1e-20f;

float SumOfChosen(const RouterConfig& config, const float* scores,
                  const int32_t* index) {
  float sum = 0;
  for (int64_t j = 0; j < config.topk; ++j) sum += scores[index[j]];
  return sum + kLeastSum;
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
  if (config.score == RouterScore::kSigmoid) {
    const float scale = config.scaling / SumOfChosen(config, scores, index);
    for (int64_t j = 0; j < config.topk; ++j) {
      prob[j] = scores[index[j]] * scale;
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

// From the gradient of one row of normalized scores to that of the scores
// themselves, in place: with P = s / S, ds = (dP - sum(P dP)) / S.
void NormalizedScoresGrad(const float* scores, int64_t count, float* d) {
  F8 sums = {};
  F8 dots = {};
  simd::ForEach8(count, [&](int64_t i, auto lanes) {
    const F8 s = simd::Load(scores + i, lanes);
    sums += s;
    dots += s * simd::Load(d + i, lanes);
  });
  const float scale = 1.0f / (simd::SumLanes(sums) + kLeastSum);
  const float dot = simd::SumLanes(dots) * scale;
  simd::ForEach8(count, [&](int64_t i, auto lanes) {
    simd::Store(d + i, (simd::Load(d + i, lanes) - dot) * scale, lanes);
  });
}

// What a row's backward reads.
struct RowGradArgs {
  const RouterConfig& config;
  bool has_d_scores;
  const float* scores;
  const int32_t* index;
  const float* prob;
  const float* d_prob;
};

// d_logits of one row of sigmoids from the gradient of its normalized scores
// (in d_logits on entry). With D the sum of the chosen scores, the chosen get
// ds_j = (scaling dp_j - sum(p dp)) / D, or raw scaling dp_j; then
// d l = ds s (1 - s).
void SigmoidRowGrad(const RowGradArgs& row, float* d_logits) {
  const RouterConfig& config = row.config;
  if (row.has_d_scores) {
    NormalizedScoresGrad(row.scores, config.num_experts, d_logits);
  }
  float dot = 0;
  float scale = 1;
  if (config.normalize_topk) {
    for (int64_t j = 0; j < config.topk; ++j)
      dot += row.prob[j] * row.d_prob[j];
    scale = 1.0f / SumOfChosen(config, row.scores, row.index);
  }
  for (int64_t j = 0; j < config.topk; ++j) {
    d_logits[row.index[j]] += (row.d_prob[j] * config.scaling - dot) * scale;
  }
  simd::ForEach8(config.num_experts, [&](int64_t i, auto lanes) {
    const F8 s = simd::Load(row.scores + i, lanes);
    const F8 slope = s * (1.0f - s);
    simd::Store(d_logits + i, simd::Load(d_logits + i, lanes) * slope, lanes);
  });
}

// The same of a softmax.
void SoftmaxRowGrad(const RowGradArgs& row, float* d_logits) {
  const RouterConfig& config = row.config;
  if (!config.normalize_topk) {
    for (int64_t j = 0; j < config.topk; ++j) {
      d_logits[row.index[j]] += row.d_prob[j] * config.scaling;
    }
  }
  if (row.has_d_scores || !config.normalize_topk) {
    SoftmaxGrad(row.scores, config.num_experts, d_logits);
  }
  if (config.normalize_topk) {
    AddNormalizedGrad(config, row.index, row.prob, row.d_prob, d_logits);
  }
}

}  // namespace

void RouterForward(const RouterForwardArgs& args, device::Stream& stream) {
  if (RunOnCuda<&RouterForward>(args, stream)) return;
  const int64_t experts = args.config.num_experts;
  const int64_t topk = args.config.topk;
  const bool softmax = args.config.score == RouterScore::kSoftmax;
  std::memset(args.counts, 0, experts * sizeof(int32_t));
  for (int64_t token = 0; token < args.tokens; ++token) {
    const float* logits = args.logits + token * experts;
    float* scores = args.scores + token * experts;
    int32_t* index = args.topk_index + token * topk;
    (softmax ? Softmax : Sigmoids)(logits, experts, scores);
    if (args.plain_index != nullptr) {
      Insert(softmax ? logits : scores, 0, experts, topk, 0,
             args.plain_index + token * topk);
    }
    ChooseExperts(args, token, scores, index);
    ChosenProbs(args.config, logits, scores, index,
                args.topk_prob + token * topk);
    for (int64_t j = 0; j < topk; ++j) ++args.counts[index[j]];
  }
}

void RouterBackward(const RouterBackwardArgs& args, device::Stream& stream) {
  if (RunOnCuda<&RouterBackward>(args, stream)) return;
  const RouterConfig& config = args.config;
  const int64_t experts = config.num_experts;
  const bool has_d_scores = args.d_scores != nullptr;
  const auto row_grad =
      config.score == RouterScore::kSoftmax ? SoftmaxRowGrad : SigmoidRowGrad;
  for (int64_t token = 0; token < args.tokens; ++token) {
    float* d_logits = args.d_logits + token * experts;
    if (has_d_scores) {
      std::memcpy(d_logits, args.d_scores + token * experts,
                  experts * sizeof(float));
    } else {
      std::memset(d_logits, 0, experts * sizeof(float));
    }
    const int64_t chosen = token * config.topk;
    row_grad({config, has_d_scores, args.scores + token * experts,
              args.topk_index + chosen, args.topk_prob + chosen,
              args.d_topk_prob + chosen},
             d_logits);
  }
}

}  // namespace weft::ops

// Losses of a router: load balancing and the z-loss. Sources: Fedus et al.,
// "Switch Transformers", 2021 (balancing); Zoph et al., "ST-MoE", 2022
// (z-loss).
//
//   P the scores of a token, which add up to 1, n_e how many chose expert e
//
//   balance = factor * sum_e n_e * sum_t P_te       d P_te = factor * n_e
//   z       = sum_t lse_t^2, lse_t = logsumexp(L_t)
//                                       d L_te = 2 lse_t softmax(L_t)_e
//
// With `groups` the balancing loss is that of each group of `tokens` tokens,
// added up. The caller makes means of the sums by `factor`: of all tokens of a
// microbatch, E / (k T^2). Sums are in fp64, on the CPU tokens ascending, on
// CUDA in an order that depends on sizes alone. Counts have no gradient.
//
// `valid`, where given, is 0 for tokens that have no part in a loss, and 1 for
// the others. `weight`, where given, is one more factor, that the device knows.
#ifndef WEFT_KERNELS_OPS_ROUTER_LOSS_ROUTER_LOSS_H_
#define WEFT_KERNELS_OPS_ROUTER_LOSS_ROUTER_LOSS_H_

#include <cstdint>

#include "kernels/ops/stream.h"

namespace weft::ops {

// Writes the scores and choices of tokens as the balancing losses read them,
// where they are not those of the router: with `normalize` scores are divided
// by their sum over the experts plus 1e-20; what is not valid has scores 0 and
// choices -1.
struct LossInputsArgs {
  int64_t tokens = 0;
  int64_t num_experts = 0;
  int64_t topk = 0;
  bool normalize = false;
  const float* scores = nullptr;   // [tokens, num_experts]
  const int32_t* index = nullptr;  // [tokens, topk]
  const int32_t* valid = nullptr;  // [tokens] or null
  float* out_scores = nullptr;     // [tokens, num_experts]; may be `scores`
  int32_t* out_index = nullptr;    // [tokens, topk], null: not wanted; may be
                                   // `index`
};
void LossInputs(const LossInputsArgs& args, device::Stream& stream);

// sums[e] = sum_t P_te
struct ScoreSumsArgs {
  int64_t tokens = 0;
  int64_t num_experts = 0;
  const float* scores = nullptr;  // [tokens, num_experts]
  double* sums = nullptr;         // [num_experts]
};
void ScoreSums(const ScoreSumsArgs& args, device::Stream& stream);

// out = x as floats, then zeros: counts in the form in which they are summed
// over ranks. Exact up to 2^24.
struct CountsToFloatsArgs {
  int64_t count = 0;
  int64_t padded = 0;          // at least `count`
  const int32_t* x = nullptr;  // [count]
  float* out = nullptr;        // [padded]
};
void CountsToFloats(const CountsToFloatsArgs& args, device::Stream& stream);

// loss = factor * sum_e counts[e] * sums[e]
struct BalanceLossArgs {
  int64_t num_experts = 0;
  double factor = 1;
  const float* counts = nullptr;  // [num_experts]
  const double* sums = nullptr;   // [num_experts]
  double* loss = nullptr;         // [1]
  const float* weight = nullptr;  // [1] or null
};
void BalanceLoss(const BalanceLossArgs& args, device::Stream& stream);

// d_scores[t, e] = factor * counts[e], or added to it with `accumulate`.
struct BalanceGradArgs {
  int64_t tokens = 0;
  int64_t num_experts = 0;
  double factor = 1;
  const float* counts = nullptr;  // [num_experts]
  float* d_scores = nullptr;      // [tokens, num_experts]
  bool accumulate = false;
  const float* weight = nullptr;   // [1] or null
  const int32_t* valid = nullptr;  // [tokens] or null
};
void BalanceGrad(const BalanceGradArgs& args, device::Stream& stream);

// The balancing loss of each group, counts and all.
struct GroupBalanceLossArgs {
  int64_t groups = 0;
  int64_t tokens = 0;  // of a group
  int64_t num_experts = 0;
  int64_t topk = 0;
  double factor = 1;
  const float* scores = nullptr;        // [groups * tokens, num_experts]
  const int32_t* topk_index = nullptr;  // [groups * tokens, topk], -1: none
  int32_t* counts = nullptr;            // [groups, num_experts], written
  double* loss = nullptr;               // [1]
  const float* weight = nullptr;        // [1] or null
};
void GroupBalanceLoss(const GroupBalanceLossArgs& args, device::Stream& stream);

// As BalanceGrad, with the counts of each group.
struct GroupBalanceGradArgs {
  int64_t groups = 0;
  int64_t tokens = 0;  // of a group
  int64_t num_experts = 0;
  double factor = 1;
  const int32_t* counts = nullptr;  // [groups, num_experts]
  float* d_scores = nullptr;        // [groups * tokens, num_experts]
  bool accumulate = false;
  const float* weight = nullptr;   // [1] or null
  const int32_t* valid = nullptr;  // [groups * tokens] or null
};
void GroupBalanceGrad(const GroupBalanceGradArgs& args, device::Stream& stream);

// loss = factor * sum_t lse_t^2
struct ZLossArgs {
  int64_t tokens = 0;
  int64_t num_experts = 0;
  double factor = 1;
  const float* logits = nullptr;   // [tokens, num_experts]
  float* lse = nullptr;            // [tokens], written
  double* loss = nullptr;          // [1]
  const float* weight = nullptr;   // [1] or null
  const int32_t* valid = nullptr;  // [tokens] or null
};
void ZLoss(const ZLossArgs& args, device::Stream& stream);

// d_logits[t, e] += factor * 2 * lse_t * softmax(L_t)_e, the last from the
// scores if they are that, else from the logits.
struct ZGradArgs {
  int64_t tokens = 0;
  int64_t num_experts = 0;
  double factor = 1;
  const float* lse = nullptr;      // [tokens]
  const float* scores = nullptr;   // [tokens, num_experts], or null
  float* d_logits = nullptr;       // [tokens, num_experts]
  const float* weight = nullptr;   // [1] or null
  const int32_t* valid = nullptr;  // [tokens] or null
  const float* logits = nullptr;   // [tokens, num_experts], without `scores`
};
void ZGrad(const ZGradArgs& args, device::Stream& stream);

}  // namespace weft::ops

#endif  // WEFT_KERNELS_OPS_ROUTER_LOSS_ROUTER_LOSS_H_

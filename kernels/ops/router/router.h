// Top-k routing from router logits, in fp32.
//
//   softmax: scores = softmax(logits) over all experts
//   sigmoid: scores = sigmoid(logits), each by itself
//
//   chosen: the topk with the largest choice value, which is the logit with
//           softmax and score + bias with sigmoid; of equal ones the lower
//           index first. With groups, only the experts of the best groups can
//           be chosen (DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024): a
//           group's score is the sum of the largest of its scores, biases
//           included; of equal groups the lower index first. Or those that are
//           given
//
//   raw:        prob = scaling * scores[chosen]
//   normalized: prob = scaling * scores[chosen] / sum(scores[chosen]), which
//               with softmax is the softmax over the chosen logits; with
//               sigmoid 1e-20 is added to the sum
//
// The bias chooses, and is no part of a probability. The logits themselves are
// a LinearForward of the caller.
#ifndef WEFT_KERNELS_OPS_ROUTER_ROUTER_H_
#define WEFT_KERNELS_OPS_ROUTER_ROUTER_H_

#include <cstdint>

#include "kernels/ops/stream.h"

namespace weft::ops {

enum class RouterScore : uint8_t { kSoftmax = 0, kSigmoid };

// Requires: 1 <= topk <= num_experts <= 4096. With groups, they divide the
// experts, group_scores is at most the experts of a group, and the groups kept
// have topk experts at least.
struct RouterConfig {
  int64_t num_experts = 0;
  int64_t topk = 0;
  RouterScore score = RouterScore::kSoftmax;
  bool normalize_topk = true;
  float scaling = 1.0f;
  int64_t groups = 0;        // contiguous, of the same size; 0: none
  int64_t kept_groups = 0;   // a token's best
  int64_t group_scores = 0;  // of a group, that add up to its score
  // Choices go round, whatever the logits: the j-th of token t is expert
  // (t * topk + j) mod num_experts. For benchmarks.
  bool balanced = false;
};

struct RouterForwardArgs {
  RouterConfig config;
  int64_t tokens = 0;
  const float* logits = nullptr;  // [tokens, num_experts]
  float* scores = nullptr;        // [tokens, num_experts]
  int32_t* topk_index = nullptr;  // [tokens, topk], by descending choice value
  float* topk_prob = nullptr;     // [tokens, topk]
  int32_t* counts = nullptr;      // [num_experts], slots per expert
  // [tokens, topk] or null: the experts of each token, all different, which
  // become its topk_index in this order. A token of whose the first is negative
  // chooses its own.
  const int32_t* given = nullptr;
  const float* bias = nullptr;  // [num_experts], with sigmoid; or null
  // [tokens, topk] what would be chosen without bias and groups, and when
  // neither `balanced` nor `given` said otherwise; null: not wanted
  int32_t* plain_index = nullptr;
};
void RouterForward(const RouterForwardArgs& args, device::Stream& stream);

// The choice itself has no gradient. `d_scores`, when given, is the gradient
// that reaches the scores from elsewhere (balancing losses): with sigmoid, that
// of the scores divided by their sum over all experts, as NormalizeScores of
// kernels/ops/router_loss has them.
struct RouterBackwardArgs {
  RouterConfig config;
  int64_t tokens = 0;
  const float* scores = nullptr;        // [tokens, num_experts]
  const int32_t* topk_index = nullptr;  // [tokens, topk]
  const float* topk_prob = nullptr;     // [tokens, topk]
  const float* d_topk_prob = nullptr;   // [tokens, topk]
  const float* d_scores = nullptr;      // [tokens, num_experts] or null
  float* d_logits = nullptr;            // [tokens, num_experts]
};
void RouterBackward(const RouterBackwardArgs& args, device::Stream& stream);

}  // namespace weft::ops

#endif  // WEFT_KERNELS_OPS_ROUTER_ROUTER_H_

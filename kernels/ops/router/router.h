// Top-k routing from router logits, in fp32.
//
//   scores = softmax(logits) over all experts
//   chosen: the topk largest logits; of equal ones the lower index first; or
//           those that are given
//   raw:        prob = scaling * scores[chosen]
//   normalized: prob = scaling * scores[chosen] / sum(scores[chosen]), which is
//               the softmax over the chosen logits
//
// The logits themselves are a LinearForward of the caller.
#ifndef WEFT_KERNELS_OPS_ROUTER_ROUTER_H_
#define WEFT_KERNELS_OPS_ROUTER_ROUTER_H_

#include <cstdint>

#include "kernels/ops/stream.h"

namespace weft::ops {

enum class RouterScore : uint8_t { kSoftmax = 0 };

// Requires: 1 <= topk <= num_experts.
struct RouterConfig {
  int64_t num_experts = 0;
  int64_t topk = 0;
  RouterScore score = RouterScore::kSoftmax;
  bool normalize_topk = true;
  float scaling = 1.0f;
  // Choices go round, whatever the logits: the j-th of token t is expert
  // (t * topk + j) mod num_experts. For benchmarks.
  bool balanced = false;
};

struct RouterForwardArgs {
  RouterConfig config;
  int64_t tokens = 0;
  const float* logits = nullptr;  // [tokens, num_experts]
  float* scores = nullptr;        // [tokens, num_experts]
  int32_t* topk_index = nullptr;  // [tokens, topk], by descending score
  float* topk_prob = nullptr;     // [tokens, topk]
  int32_t* counts = nullptr;      // [num_experts], slots per expert
  // [tokens, topk] or null: the experts of each token, all different, which
  // become its topk_index in this order. A token of whose the first is negative
  // chooses its own.
  const int32_t* given = nullptr;
};
void RouterForward(const RouterForwardArgs& args, device::Stream& stream);

// The choice itself has no gradient. `d_scores`, when given, is the gradient
// that reaches the scores from elsewhere (balancing losses).
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

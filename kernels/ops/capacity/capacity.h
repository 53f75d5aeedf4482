// Bounds the tokens that an expert takes (Lepikhin et al., "GShard", 2020; here
// the tokens that weigh it most stay), and counts tokens by expert.
//
// A slot is one choice of a token: slot = token * topk + choice.
#ifndef WEFT_KERNELS_OPS_CAPACITY_CAPACITY_H_
#define WEFT_KERNELS_OPS_CAPACITY_CAPACITY_H_

#include <cstdint>

#include "kernels/ops/stream.h"

namespace weft::ops {

// kept_index is topk_index where the slot is one of the `capacity` of its
// expert with the largest probability, of equal ones those of earlier slots;
// else -1. What is not a number counts as 0.
//
// Requires: 0 <= topk_index < num_experts; probabilities are not negative.
struct KeepWithinCapacityArgs {
  int64_t tokens = 0;
  int64_t topk = 0;
  int64_t num_experts = 0;
  int64_t capacity = 0;
  const int32_t* topk_index = nullptr;  // [tokens, topk]
  const float* topk_prob = nullptr;     // [tokens, topk]
  int32_t* kept_index = nullptr;        // [tokens, topk]
  int32_t* scratch = nullptr;           // [tokens, topk]
};
void KeepWithinCapacity(const KeepWithinCapacityArgs& args,
                        device::Stream& stream);

// counts[e] = slots with index e of tokens that `valid` does not leave out.
//
// Requires: -1 <= index < num_experts.
struct CountChoicesArgs {
  int64_t tokens = 0;
  int64_t topk = 0;
  int64_t num_experts = 0;
  const int32_t* index = nullptr;  // [tokens, topk]; -1: none
  const int32_t* valid = nullptr;  // [tokens] 1, or 0: left out; null: all 1
  int32_t* counts = nullptr;       // [num_experts]
};
void CountChoices(const CountChoicesArgs& args, device::Stream& stream);

// counts[e] = value
struct FillCountsArgs {
  int64_t count = 0;
  int32_t value = 0;
  int32_t* counts = nullptr;  // [count]
};
void FillCounts(const FillCountsArgs& args, device::Stream& stream);

// out = previous + x: counts as they add up. Exact.
struct AddCountsArgs {
  int64_t count = 0;
  const int32_t* x = nullptr;        // [count]
  const double* previous = nullptr;  // [count], or null: 0
  double* out = nullptr;             // [count]
};
void AddCounts(const AddCountsArgs& args, device::Stream& stream);

}  // namespace weft::ops

#endif  // WEFT_KERNELS_OPS_CAPACITY_CAPACITY_H_

// Moving rows between token order and expert order, and summing them in one
// fixed order.
//
// A slot is one choice of a token: slot = token * topk + choice. The rows a
// rank sends are its slots ordered by (expert, token), one row each. A slot of
// which the index is -1 is dropped: it has no row. Where an index says -1, what
// is gathered is zero.
//
//   dispatch forward:  send rows  = GatherRows(hidden, token_of_row)
//                      send probs = GatherElements(topk_prob, slot_of_row)
//   combine forward:   CombineRows(returned rows)
//   combine backward:  d rows     = GatherRows(d_out, token_of_row)
//   dispatch backward: CombineRows(d send rows),
//                      d_topk_prob = GatherElements(d probs, row_of_slot)
//
// A rank that has the tokens of all ranks builds the rows of its own experts in
// the same way, the tokens of rank 0 first. CombineRows then makes its partial
// sums, one a token, and the rank that a token came from combines those of all
// ranks, which IndexPartialSums finds.
#ifndef WEFT_KERNELS_OPS_PERMUTE_PERMUTE_H_
#define WEFT_KERNELS_OPS_PERMUTE_PERMUTE_H_

#include <cstdint>

#include "kernels/ops/stream.h"

namespace weft::ops {

// Rows of the experts [first_expert, first_expert + num_experts). With `rows`,
// slots that chose another are dropped, and those whose row would not be one of
// them.
//
// Requires: topk_index is one of these experts unless `rows` is given; the
// experts of a token differ; tokens * topk and rows < 2^31 - 1.
struct BuildPermutationArgs {
  int64_t tokens = 0;
  int64_t topk = 0;
  int64_t num_experts = 0;
  const int32_t* topk_index = nullptr;  // [tokens, topk]
  int64_t* offsets = nullptr;  // [num_experts + 1], first row of each expert
  int32_t* row_of_slot = nullptr;   // [tokens, topk], -1: dropped
  int32_t* slot_of_row = nullptr;   // [rows], -1: no slot has it
  int32_t* token_of_row = nullptr;  // [rows], -1: the same
  // The rows of a token by ascending expert, and those experts; then -1 for
  // each slot that is dropped.
  int32_t* sorted_rows = nullptr;     // [tokens, topk]
  int32_t* sorted_experts = nullptr;  // [tokens, topk]
  // Where slots may be dropped: the rows that there are. 0: tokens * topk.
  int64_t rows = 0;
  // With `rows`: those of each expert, which has no more slots. 0: as many as
  // it has slots.
  int64_t expert_rows = 0;
  int64_t first_expert = 0;
};
void BuildPermutation(const BuildPermutationArgs& args, device::Stream& stream);

// Where a rank finds what the ranks that own experts know of its tokens, when
// each has sent it that of all tokens: rank r's partial sum of token t is row
// r * tokens + t, what it knows of slot s is element r * tokens * topk + s.
// Expert e is owned by rank e / experts_per_rank.
struct IndexPartialSumsArgs {
  int64_t tokens = 0;
  int64_t topk = 0;
  int64_t experts_per_rank = 0;
  const int32_t* topk_index = nullptr;  // [tokens, topk], -1: dropped
  int32_t* element_of_slot = nullptr;   // [tokens, topk], -1: the same
  // Of a token, the partial sums that have a summand, by ascending rank, and
  // those ranks: what CombineRows takes with experts_per_rank = 1. Then -1.
  int32_t* sorted_rows = nullptr;   // [tokens, topk]
  int32_t* sorted_ranks = nullptr;  // [tokens, topk]
};
void IndexPartialSums(const IndexPartialSumsArgs& args, device::Stream& stream);

// out[r] = src[index[r]], 0 where that is -1
struct GatherRowsArgs {
  int64_t rows = 0;
  int64_t hidden = 0;
  ConstTensor src;                     // [any, hidden]
  const int32_t* index = nullptr;      // [rows]
  Tensor out;                          // [rows, hidden], in the format of src
  const int64_t* row_count = nullptr;  // see math/row_count.h
};
void GatherRows(const GatherRowsArgs& args, device::Stream& stream);

// out[i] = src[index[i]], 0 where that is -1
struct GatherElementsArgs {
  int64_t count = 0;
  const float* src = nullptr;          // [any]
  const int32_t* index = nullptr;      // [count]
  float* out = nullptr;                // [count]
  const int64_t* row_count = nullptr;  // see math/row_count.h; of elements
};
void GatherElements(const GatherElementsArgs& args, device::Stream& stream);

// out[t] = (add1[t] + factor * add2[t]) + factor * routed[t], each product
// fused with the sum and absent summands left out, where routed[t] sums the
// rows of token t: first, inside each rank that owns experts, by ascending
// expert; then those partial sums over ranks ascending. Expert e is owned by
// rank e / experts_per_rank. The sum of no rows is 0. `out` may be add1 or
// add2.
//
// rows, add1, add2 and out have one format, to which each partial sum is
// rounded. So rows that already are partial sums, one per (token, rank), are
// combined with experts_per_rank = 1 and ranks in place of experts: the bits
// are the same. Requires: add1, if `factor` is not 1.
struct CombineRowsArgs {
  int64_t tokens = 0;
  int64_t topk = 0;
  int64_t hidden = 0;
  int64_t experts_per_rank = 0;
  ConstTensor rows;                         // [any, hidden]
  const int32_t* sorted_rows = nullptr;     // [tokens, topk]
  const int32_t* sorted_experts = nullptr;  // [tokens, topk]
  ConstTensor add1;                         // [tokens, hidden] or null
  ConstTensor add2;                         // [tokens, hidden] or null
  Tensor out;                               // [tokens, hidden]
  float factor = 1.0f;
};
void CombineRows(const CombineRowsArgs& args, device::Stream& stream);

}  // namespace weft::ops

#endif  // WEFT_KERNELS_OPS_PERMUTE_PERMUTE_H_

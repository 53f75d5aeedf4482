// Token embedding: a table lookup and its deterministic gradient.
#ifndef WEFT_KERNELS_OPS_EMBEDDING_EMBEDDING_H_
#define WEFT_KERNELS_OPS_EMBEDDING_EMBEDDING_H_

#include <cstdint>

#include "kernels/ops/stream.h"

namespace weft::ops {

// out[t] = factor * table[ids[t]]. Requires: 0 <= ids < vocab.
struct EmbeddingForwardArgs {
  int64_t tokens = 0;
  int64_t vocab = 0;
  int64_t hidden = 0;
  const int32_t* ids = nullptr;  // [tokens]
  ConstTensor table;             // [vocab, hidden]
  Tensor out;                    // [tokens, hidden], in the table's format
  float factor = 1.0f;
};
void EmbeddingForward(const EmbeddingForwardArgs& args, device::Stream& stream);

// int32 elements of scratch that EmbeddingBackward needs on the CPU.
int64_t EmbeddingBackwardScratchElements(int64_t tokens, int64_t vocab);

// d_table[v] = factor * sum of d_out[t] over the tokens t with ids[t] == v,
// ascending.
// Rows of ids that do not occur are zero-filled, or left with `accumulate`; so
// is that of untrained_id.
// Requires: 0 <= ids < vocab; tokens < 2^31.
struct EmbeddingBackwardArgs {
  int64_t tokens = 0;
  int64_t vocab = 0;
  int64_t hidden = 0;
  const int32_t* ids = nullptr;  // [tokens]
  ConstTensor d_out;             // [tokens, hidden]
  Tensor d_table;                // [vocab, hidden]
  bool accumulate = false;
  int32_t* scratch = nullptr;
  float factor = 1.0f;
  int64_t untrained_id = -1;  // -1: none
};
void EmbeddingBackward(const EmbeddingBackwardArgs& args,
                       device::Stream& stream);

}  // namespace weft::ops

#endif  // WEFT_KERNELS_OPS_EMBEDDING_EMBEDDING_H_

// How a backward is cut into parts whose ds fit memory together.
#ifndef WEFT_KERNELS_OPS_ATTENTION_BACKWARD_PARTS_H_
#define WEFT_KERNELS_OPS_ATTENTION_BACKWARD_PARTS_H_

#include "kernels/ops/attention/attention.h"

namespace weft::ops {

// Parts of one kind that cover a call: `batch` sequences each, `num_kv_heads`
// key heads and `num_heads` query heads that read them. All divide the call's.
//
// Where a part has fewer query heads than read a key head, dk and dv are sums
// over `sums` parts; else `sums` is 1.
struct BackwardParts {
  AttentionShape part;
  int64_t sums = 1;
};

// Bytes of ds in bf16, [batch, num_heads, seq, seq].
int64_t ScoreGradBytes(const AttentionShape& shape);

// The largest parts whose ds are `most_bytes` at most, whole sequences before
// whole key heads before query heads. No sequences in a part: even one query
// head is too much. Requires: `shape` is not empty.
BackwardParts PartsOf(const AttentionShape& shape, int64_t most_bytes);

}  // namespace weft::ops

#endif  // WEFT_KERNELS_OPS_ATTENTION_BACKWARD_PARTS_H_

// Causal grouped-query attention over packed q, k, v.
//
// Tokens are sequence-major: token = sequence * seq + position. A packed row
// holds num_heads query heads, then num_kv_heads key heads, then num_kv_heads
// value heads, which may differ from the others in width. Query head h reads
// key and value head h / (num_heads / num_kv_heads).
//
//   p = softmax(scale * q k^T, positions up to its own)     out = p v
//   lse = log(sum(exp(scale * q k^T)))
//
// Backward recomputes p = exp(scale * q k^T - lse); with delta = sum(d_out *
// out): ds = p * (d_out v^T - delta), dq = scale * ds k, dk = scale * ds^T q,
// dv = p^T d_out. dk and dv of a group are summed over its query heads in
// ascending order.
//
// Scores are never held whole: scratch is one or two blocks of 64 queries by
// `seq` keys, and in fp32 what is read and written of the heads at hand. Work
// above the diagonal is left out.
//
// All tensors of a call have one format. Everything between them, probabilities
// included, is fp32.
//
// On CUDA: heads are at most 256 wide, tensors are aligned to 16 bytes and
// `scratch` is not used. In bf16, tensor cores do the backward of heads of 64
// and 128, values as wide, and of 192 with values of 128, and, in sequences of
// a multiple of 128 tokens, their forward. They take what they multiply in
// bf16: p and ds, too.
#ifndef WEFT_KERNELS_OPS_ATTENTION_ATTENTION_H_
#define WEFT_KERNELS_OPS_ATTENTION_ATTENTION_H_

#include <cstdint>

#include "kernels/ops/stream.h"

namespace weft::ops {

// Requires: num_heads a multiple of num_kv_heads.
struct AttentionShape {
  int64_t batch = 0;
  int64_t seq = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;    // of queries and keys
  float scale = 0;         // of the scores, mostly 1 / sqrt(head_dim)
  int64_t v_head_dim = 0;  // of values; 0: head_dim

  constexpr int64_t tokens() const { return batch * seq; }
  constexpr int64_t value_dim() const {
    return v_head_dim > 0 ? v_head_dim : head_dim;
  }
  // Of a packed row: where keys and values begin, and its end.
  constexpr int64_t key_column() const { return num_heads * head_dim; }
  constexpr int64_t value_column() const {
    return key_column() + num_kv_heads * head_dim;
  }
  constexpr int64_t qkv_width() const {
    return value_column() + num_kv_heads * value_dim();
  }
  constexpr int64_t out_width() const { return num_heads * value_dim(); }
};

// Floats of scratch that a call with this shape needs.
int64_t AttentionForwardScratchElements(const AttentionShape& shape);
int64_t AttentionBackwardScratchElements(const AttentionShape& shape);

struct AttentionForwardArgs {
  AttentionShape shape;
  ConstTensor qkv;       // [tokens, qkv_width]
  Tensor out;            // [tokens, out_width]
  float* lse = nullptr;  // [tokens, num_heads], kept for backward
  float* scratch = nullptr;
};
void AttentionForward(const AttentionForwardArgs& args, device::Stream& stream);

struct AttentionBackwardArgs {
  AttentionShape shape;
  ConstTensor qkv;             // [tokens, qkv_width]
  ConstTensor out;             // [tokens, out_width]
  const float* lse = nullptr;  // [tokens, num_heads]
  ConstTensor d_out;           // [tokens, out_width]
  Tensor d_qkv;                // [tokens, qkv_width], all of it written
  float* scratch = nullptr;
};
void AttentionBackward(const AttentionBackwardArgs& args,
                       device::Stream& stream);

}  // namespace weft::ops

#endif  // WEFT_KERNELS_OPS_ATTENTION_ATTENTION_H_

// Queries, keys and values of multi-head latent attention (DeepSeek-AI,
// "DeepSeek-V2", 2024, section 2.1), from what projections give to the packed
// rows that kernels/ops/attention reads, and their gradients back.
//
// A head of queries and of keys is a plain part, then a rotated one; the
// rotated part of keys is one for all heads:
//
//   query head h = [q_h plain, rotated(q_h rope)]
//   key head h   = [k_h plain, rotated(k_rope)]      value head h = v_h
//
// With half = rope_dim / 2, i < half, the cosine c and sine s of a token's
// position at i, and the pair (a, b) = (x[2i], x[2i + 1]), or with `half_split`
// (x[i], x[i + half]):
//   rotated(x)[i]        = a c - b s
//   rotated(x)[i + half] = b c + a s
//
// Backward sums the gradient of the shared key part over heads, ascending, and
// then turns it back. All tensors of a call have one format.
#ifndef WEFT_KERNELS_OPS_MLA_QKV_MLA_QKV_H_
#define WEFT_KERNELS_OPS_MLA_QKV_MLA_QKV_H_

#include <cstdint>

#include "kernels/ops/stream.h"

namespace weft::ops {

// Requires: rope_dim even; tables of at least `seq` positions. Token t is at
// position t % seq.
struct MlaQkvShape {
  int64_t tokens = 0;
  int64_t seq = 0;
  int64_t heads = 0;
  int64_t plain_dim = 0;
  int64_t rope_dim = 0;
  int64_t v_dim = 0;
  bool half_split = false;
  const float* cos = nullptr;  // [>= seq, rope_dim / 2]
  const float* sin = nullptr;

  constexpr int64_t qk_dim() const { return plain_dim + rope_dim; }
  constexpr int64_t q_width() const { return heads * qk_dim(); }
  constexpr int64_t kv_width() const { return heads * (plain_dim + v_dim); }
  constexpr int64_t qkv_width() const { return heads * (2 * qk_dim() + v_dim); }
};

struct MlaQkvForwardArgs {
  MlaQkvShape shape;
  ConstTensor q;       // [tokens, q_width]; per head plain, rope
  ConstTensor kv;      // [tokens, kv_width]; per head plain key, value
  ConstTensor k_rope;  // [tokens, rope_dim]
  Tensor qkv;          // [tokens, qkv_width]; query, key, then value heads
};
void MlaQkvForward(const MlaQkvForwardArgs& args, device::Stream& stream);

struct MlaQkvBackwardArgs {
  MlaQkvShape shape;
  ConstTensor d_qkv;
  Tensor d_q;
  Tensor d_kv;
  Tensor d_k_rope;
};
void MlaQkvBackward(const MlaQkvBackwardArgs& args, device::Stream& stream);

}  // namespace weft::ops

#endif  // WEFT_KERNELS_OPS_MLA_QKV_MLA_QKV_H_

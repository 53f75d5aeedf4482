// Rotary position embedding, half-split style.
//
// The first `rot_dim` elements of each query and key head are rotated; with
// half = rot_dim / 2, i < half and the angle a = position * inv_freq[i]:
//   y[i]        = x[i] * cos(a) - x[i + half] * sin(a)
//   y[i + half] = x[i + half] * cos(a) + x[i] * sin(a)
// Backward is the same with sin negated.
#ifndef WEFT_KERNELS_OPS_ROPE_ROPE_H_
#define WEFT_KERNELS_OPS_ROPE_ROPE_H_

#include <cstdint>

#include "kernels/ops/stream.h"

namespace weft::ops {

// inv_freq[i] = theta^(-2i / rot_dim) for i < rot_dim / 2. On the host.
void BuildRopeFrequencies(int64_t rot_dim, double theta, float* inv_freq);

// YaRN: Peng et al., "YaRN: Efficient Context Window Extension of Large
// Language Models", 2023, with dimensions rounded outward as its code does.
struct Yarn {
  double factor = 1;              // at least 1
  double original_positions = 1;  // that a model was made for
  double beta_fast = 32;          // rotations over them, of what stays as it is
  double beta_slow = 1;           // and of what is slowed down by the factor
};

// As above, with d = rot_dim and dim(n) = d ln(original_positions / (2 pi n)) /
// (2 ln theta): theta^(-2i / d) ((1 - r) + r / factor), where
// r = clamp((i - low) / (high - low), 0, 1), low = max(floor(dim(beta_fast)),
// 0) and high = min(ceil(dim(beta_slow)), d - 1), or 0.001 above an equal low.
// Requires: theta > 1. On the host.
void BuildYarnFrequencies(int64_t rot_dim, double theta, const Yarn& yarn,
                          float* inv_freq);

// cos and sin [positions, rot_dim / 2] of position * inv_freq, the product
// taken in fp32, both times `magnitude`. On the host, once, before the first
// step.
void BuildRopeTables(int64_t positions, int64_t rot_dim, const float* inv_freq,
                     float* cos, float* sin, double magnitude = 1);

// Rotates q and k in place inside packed rows: num_heads query heads, then
// num_kv_heads key heads, then num_kv_heads value heads (untouched). Token t is
// at position t % seq of its sequence.
//
// Requires: rot_dim even and at most head_dim; tables of at least `seq`
// positions.
struct RopeArgs {
  int64_t tokens = 0;
  int64_t seq = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t rot_dim = 0;
  const float* cos = nullptr;  // [>= seq, rot_dim / 2]
  const float* sin = nullptr;  // [>= seq, rot_dim / 2]
  Tensor qkv;  // [tokens, (num_heads + 2 * num_kv_heads) * head_dim]
};
void RopeForward(const RopeArgs& args, device::Stream& stream);
void RopeBackward(const RopeArgs& args, device::Stream& stream);

}  // namespace weft::ops

#endif  // WEFT_KERNELS_OPS_ROPE_ROPE_H_

// The selective state space recurrence of Mamba-2 over the tokens of each
// sequence, computed in chunks (Dao and Gu, "Transformers are SSMs", 2024).
//
// Tokens are sequence-major: token = sequence * seq + position. A head has a
// state S [head_dim, state_size], zero before a sequence. Head h reads group
// h / (heads / groups) of B and C.
//
//   dt = clamp(softplus(raw + dt_bias), dt_min, dt_max)     A = -exp(a_log)
//   S_t = exp(dt_t A) S_{t-1} + dt_t x_t B_t^T        y_t = S_t C_t + d x_t
//
// With a_i = sum of dt A from the chunk's first token to token i, S the state
// before the chunk and dS the gradient of the state behind it:
//
//   y_i = sum_{j<=i} exp(a_i - a_j) dt_j (C_i . B_j) x_j + exp(a_i) S C_i + d
//   x_i
//
//   du_j = sum_{i>=j} exp(a_i - a_j) (C_i . B_j) dy_i + exp(a_end - a_j) dS B_j
//   dx_j = dt_j du_j + d dy_j
//   Z_ij = exp(a_i - a_j) dt_j (dy_i . x_j)   for j <= i, summed over the group
//   dC_i = sum_j Z_ij B_j + sum of heads exp(a_i) S^T dy_i
//   dB_j = sum_i Z_ij C_i + sum of heads exp(a_end - a_j) dt_j dS^T x_j
//   da_i = dy_i . (y_i - d x_i) - dt_i x_i . du_i; at the chunk's end + dS . S'
//          with S' the state behind the chunk
//   q_t = sum_{i>=t} da_i        d_dt_t = A q_t + x_t . du_t
//   d_raw = d_dt * sigmoid(raw + dt_bias) where the clamp did not act, else 0
//   da_log = A sum_t dt_t q_t    dd = sum_t x_t . dy_t    ddt_bias = sum_t
//   d_raw
//
// The token's own term of y and of du cancels in da and is left out there.
// States are recomputed in backward. xbc, dt, y and their gradients have one
// format, except d_xbc, which is fp32; parameters and their gradients may have
// other ones.
#ifndef WEFT_KERNELS_OPS_SSM_SCAN_SSM_SCAN_H_
#define WEFT_KERNELS_OPS_SSM_SCAN_SSM_SCAN_H_

#include <algorithm>
#include <cstdint>
#include <limits>

#include "kernels/ops/stream.h"

namespace weft::ops {

// Requires: heads a multiple of groups, chunk > 0, dt_min <= dt_max.
struct SsmScanShape {
  int64_t batch = 0;
  int64_t seq = 0;
  int64_t heads = 0;
  int64_t head_dim = 0;
  int64_t groups = 0;
  int64_t state_size = 0;
  int64_t chunk = 0;      // tokens of a chunk; the last one may have fewer
  int64_t dt_stride = 0;  // elements between rows of dt, and of its gradient
  float dt_min = 0;
  float dt_max = std::numeric_limits<float>::infinity();

  constexpr int64_t tokens() const { return batch * seq; }
  // Of x and y.
  constexpr int64_t inner() const { return heads * head_dim; }
  // Of x, B and C side by side.
  constexpr int64_t columns() const {
    return inner() + 2 * groups * state_size;
  }
  constexpr int64_t group_heads() const { return heads / groups; }
  // Tokens of the longest chunk, and chunks of a sequence.
  int64_t longest() const { return std::min(chunk, seq); }
  constexpr int64_t chunks() const { return (seq + chunk - 1) / chunk; }
};

// Floats of scratch that a call with this shape needs.
int64_t SsmScanForwardScratchElements(const SsmScanShape& shape);
int64_t SsmScanBackwardScratchElements(const SsmScanShape& shape);

// What both directions read.
struct SsmScanInputs {
  ConstTensor xbc;      // [tokens, columns]
  ConstTensor dt;       // [tokens, dt_stride]; of a row, heads elements: raw
  ConstTensor dt_bias;  // [heads]
  ConstTensor a_log;    // [heads]
  ConstTensor d;        // [heads]
};

struct SsmScanForwardArgs {
  SsmScanShape shape;
  SsmScanInputs in;
  Tensor y;  // [tokens, inner]
  float* scratch = nullptr;
};
void SsmScanForward(const SsmScanForwardArgs& args, device::Stream& stream);

// The gradient of one parameter, [heads]: summed over tokens in fp64;
// zero-filled without tokens; not computed when null.
struct SsmScanParamGrad {
  Tensor data;
  bool accumulate = false;
};

struct SsmScanBackwardArgs {
  SsmScanShape shape;
  SsmScanInputs in;
  ConstTensor d_y;         // [tokens, inner]
  float* d_xbc = nullptr;  // [tokens, columns]
  Tensor d_dt;             // [tokens, dt_stride], of raw; heads elements a row
  SsmScanParamGrad d_dt_bias;
  SsmScanParamGrad d_a_log;
  SsmScanParamGrad d_d;
  float* scratch = nullptr;
};
void SsmScanBackward(const SsmScanBackwardArgs& args, device::Stream& stream);

}  // namespace weft::ops

#endif  // WEFT_KERNELS_OPS_SSM_SCAN_SSM_SCAN_H_

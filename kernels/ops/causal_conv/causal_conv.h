// Causal depthwise convolution over the tokens of each sequence, with SiLU.
//
// Tokens are sequence-major: token = sequence * seq + position. Each channel
// has its own taps; what lies before a sequence is zero.
//
//   pre[t, c] = bias[c] + sum_w weight[c, w] * x[t - (width - 1) + w, c]
//   y = silu(pre) = pre * s,   s = 1 / (1 + exp(-pre))
//
//   d_pre = dy * s * (1 + pre * (1 - s))
//   dx[t, c] = sum_w weight[c, w] * d_pre[t + (width - 1) - w, c]
//   dweight[c, w] = sum_t d_pre[t, c] * x[t - (width - 1) + w, c]
//   dbias[c] = sum_t d_pre[t, c]
//
// x and dx are columns of longer rows. x, weight, bias, y and dx of a call have
// one format.
#ifndef WEFT_KERNELS_OPS_CAUSAL_CONV_CAUSAL_CONV_H_
#define WEFT_KERNELS_OPS_CAUSAL_CONV_CAUSAL_CONV_H_

#include <cstdint>

#include "kernels/ops/stream.h"

namespace weft::ops {

inline constexpr int64_t kMaxConvWidth = 16;

// Requires: 0 < width <= kMaxConvWidth, stride >= channels.
struct CausalConvShape {
  int64_t batch = 0;
  int64_t seq = 0;
  int64_t channels = 0;
  int64_t width = 0;
  int64_t stride = 0;  // elements between rows of x, and of dx

  constexpr int64_t tokens() const { return batch * seq; }
};

struct CausalConvForwardArgs {
  CausalConvShape shape;
  ConstTensor x;       // [tokens, stride]
  ConstTensor weight;  // [channels, width]
  ConstTensor bias;    // [channels], or null: 0
  Tensor y;            // [tokens, channels]
};
void CausalConvForward(const CausalConvForwardArgs& args,
                       device::Stream& stream);

// Gradients of parameters are summed over tokens in fp64; zero-filled without
// tokens; not computed when null.
struct CausalConvBackwardArgs {
  CausalConvShape shape;
  ConstTensor x;        // [tokens, stride]
  ConstTensor weight;   // [channels, width]
  ConstTensor bias;     // [channels], or null: 0
  float* dy = nullptr;  // [tokens, channels], overwritten with d_pre
  Tensor dx;            // [tokens, stride]
  Tensor dweight;       // [channels, width]
  bool accumulate_dweight = false;
  Tensor dbias;  // [channels]
  bool accumulate_dbias = false;
};
void CausalConvBackward(const CausalConvBackwardArgs& args,
                        device::Stream& stream);

}  // namespace weft::ops

#endif  // WEFT_KERNELS_OPS_CAUSAL_CONV_CAUSAL_CONV_H_

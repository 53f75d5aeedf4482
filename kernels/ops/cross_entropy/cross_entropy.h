// Cross-entropy of next-token logits.
//
//   lse[t] = log(sum_v exp(logits[t, v]))
//   loss_sum = sum_t lse[t] - logits[t, label[t]]
//   d_logits = scale * weight * (softmax(logits) - onehot(label))
//
// A token whose label is kIgnoredLabel has no loss and a zero gradient.
#ifndef WEFT_KERNELS_OPS_CROSS_ENTROPY_CROSS_ENTROPY_H_
#define WEFT_KERNELS_OPS_CROSS_ENTROPY_CROSS_ENTROPY_H_

#include <cstdint>

#include "kernels/ops/stream.h"

namespace weft::ops {

inline constexpr int32_t kIgnoredLabel = -1;

// Requires: vocab > 0; each label is kIgnoredLabel or in [0, vocab).
struct CrossEntropyForwardArgs {
  int64_t tokens = 0;
  int64_t vocab = 0;
  ConstTensor logits;               // [tokens, vocab]
  const int32_t* labels = nullptr;  // [tokens]
  float* lse = nullptr;             // [tokens], of ignored tokens too
  double* loss_sum = nullptr;       // [1], over the tokens not ignored
  int64_t* loss_tokens = nullptr;   // [1], how many those are; or null
};
void CrossEntropyForward(const CrossEntropyForwardArgs& args,
                         device::Stream& stream);

// `d_logits` may be `logits`.
struct CrossEntropyBackwardArgs {
  int64_t tokens = 0;
  int64_t vocab = 0;
  ConstTensor logits;               // [tokens, vocab]
  const int32_t* labels = nullptr;  // [tokens]
  const float* lse = nullptr;       // [tokens]
  float scale = 1.0f;
  Tensor d_logits;                // [tokens, vocab], in the format of logits
  const float* weight = nullptr;  // [1] a factor of `scale`, or null: 1
};
void CrossEntropyBackward(const CrossEntropyBackwardArgs& args,
                          device::Stream& stream);

}  // namespace weft::ops

#endif  // WEFT_KERNELS_OPS_CROSS_ENTROPY_CROSS_ENTROPY_H_

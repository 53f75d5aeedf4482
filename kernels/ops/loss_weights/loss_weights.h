// What losses weigh when only some tokens count as labels, or some are padding.
//
// Of a microbatch of T tokens, n of which count and v of which are valid, in a
// step of S tokens, N of which count, with r = T / max(v, 1):
//
//                            means over microbatches   means over the step
//   weights[0]  token        T / max(n, 1)             S / max(N, 1)
//   weights[1]  router       1                         S / max(N, 1) / r
//
//   weights[2]  r^2, of what is summed over choices and scores
//   weights[3]  r, of what is summed over tokens
//   weights[4]  router * r^2
//   weights[5]  router * r
//
// A loss summed over the tokens that count and divided by all tokens, times
// `token`, is its mean over those that count; so is a router loss summed over
// valid tokens, times r or r^2.
//
// A depth of multi-token prediction has labels of its own, of which d count in
// the microbatch. Its loss is a mean over those, which weighs as much as the
// microbatch's other loss, times depth_factor:
//
//   means over microbatches: depth = depth_factor T / max(d, 1)
//   means over the step:     depth = depth_factor n / max(d, 1) S / max(N, 1)
#ifndef WEFT_KERNELS_OPS_LOSS_WEIGHTS_LOSS_WEIGHTS_H_
#define WEFT_KERNELS_OPS_LOSS_WEIGHTS_LOSS_WEIGHTS_H_

#include <cstdint>

#include "kernels/ops/stream.h"

namespace weft::ops {

struct LossWeightsArgs {
  static constexpr int kMaxDepths = 16;

  int64_t ranks = 0;
  double tokens = 0;       // T, over all ranks
  double step_tokens = 0;  // S, over all ranks
  bool over_step = false;
  // [ranks, 3 + depths] each rank's share of n, N, v, and d of every depth
  const double* counted = nullptr;
  float* weights = nullptr;  // [6], or null
  int depths = 0;            // up to kMaxDepths
  double depth_factor = 0;
  float* depth_weights[kMaxDepths] = {};  // [1] each
};
void LossWeights(const LossWeightsArgs& args, device::Stream& stream);

}  // namespace weft::ops

#endif  // WEFT_KERNELS_OPS_LOSS_WEIGHTS_LOSS_WEIGHTS_H_

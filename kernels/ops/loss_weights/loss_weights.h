// What losses weigh when only some tokens count as labels.
//
// Of a microbatch of T tokens, n of which count, in a step of S tokens, N of
// which count:
//
//   means over microbatches: token = T / max(n, 1), router = 1
//   means over the step:     token = router = S / max(N, 1)
//
// A loss summed over the tokens that count and divided by all tokens, times
// `token`, is its mean over those that count.
#ifndef WEFT_KERNELS_OPS_LOSS_WEIGHTS_LOSS_WEIGHTS_H_
#define WEFT_KERNELS_OPS_LOSS_WEIGHTS_LOSS_WEIGHTS_H_

#include <cstdint>

#include "kernels/ops/stream.h"

namespace weft::ops {

struct LossWeightsArgs {
  int64_t ranks = 0;
  double tokens = 0;       // T, over all ranks
  double step_tokens = 0;  // S, over all ranks
  bool over_step = false;
  const double* counted = nullptr;  // [ranks, 2] each rank's share of n and N
  float* weights = nullptr;         // [2] token, router
};
void LossWeights(const LossWeightsArgs& args, device::Stream& stream);

}  // namespace weft::ops

#endif  // WEFT_KERNELS_OPS_LOSS_WEIGHTS_LOSS_WEIGHTS_H_

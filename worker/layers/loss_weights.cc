// What losses weigh when only some tokens count as labels, as is always so for
// depths of multi-token prediction, or are valid, from how many do and are on
// all ranks.
#include "kernels/ops/loss_weights/loss_weights.h"

#include "base/status_macros.h"
#include "model/decoder.h"
#include "model/pattern.h"
#include "worker/layers/nodes.h"

namespace weft::layers {

absl::Status LossWeightsForward(const NodeContext& ctx,
                                device::Stream& stream) {
  namespace args = model::loss_weights;
  const model::Shape& s = *ctx.shape;
  double* gathered = ctx.f64(args::kGathered);
  const int64_t bytes =
      s.loss_token_numbers() * static_cast<int64_t>(sizeof(double));
  RETURN_IF_ERROR(
      ctx.dp->AllGather(ctx.loss_tokens, gathered, bytes, stream, ctx.tag));
  ops::LossWeightsArgs weights;
  weights.ranks = s.world;
  weights.tokens = static_cast<double>(s.tokens) * s.world;
  weights.step_tokens = static_cast<double>(s.step_tokens()) * s.world;
  weights.over_step = s.token_loss;
  weights.counted = gathered;
  weights.weights = ctx.f32(args::kWeights);
  static_assert(ops::LossWeightsArgs::kMaxDepths >= model::kMaxMtpDepth);
  weights.depths = s.mtp_depths();
  weights.depth_factor =
      weights.depths > 0 ? s.mtp_loss_factor / weights.depths : 0;
  for (int k = 0; k < weights.depths; ++k) {
    weights.depth_weights[k] = ctx.f32(args::kDepths + k);
  }
  ops::LossWeights(weights, stream);
  return absl::OkStatus();
}

}  // namespace weft::layers

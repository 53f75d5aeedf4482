// Next-token cross-entropy.
//
// The gradient is that of the mean over the tokens of one rank, of the step or
// of each microbatch; the reduction over ranks multiplies by 1/world once.
// Where only some tokens count, the factor in `weights` makes it the mean over
// those of all ranks.
#include "kernels/ops/cross_entropy/cross_entropy.h"
#include "model/decoder.h"
#include "worker/layers/nodes.h"

namespace weft::layers {
namespace {

namespace args = model::loss;

}  // namespace

absl::Status LossForward(const NodeContext& ctx, device::Stream& stream) {
  ops::CrossEntropyForwardArgs forward;
  forward.tokens = ctx.shape->tokens;
  forward.vocab = ctx.shape->vocab;
  forward.logits = ctx.tensor(args::kLogits);
  forward.labels = ctx.i32(args::kLabels);
  forward.lse = ctx.f32(args::kLse);
  forward.loss_sum = ctx.f64(args::kLoss);
  ops::CrossEntropyForward(forward, stream);
  return absl::OkStatus();
}

absl::Status LossDgrad(const NodeContext& ctx, device::Stream& stream) {
  const model::Shape& s = *ctx.shape;
  ops::CrossEntropyBackwardArgs backward;
  backward.tokens = s.tokens;
  backward.vocab = s.vocab;
  backward.logits = ctx.tensor(args::kDLogits);
  backward.labels = ctx.i32(args::kDLabels);
  backward.lse = ctx.f32(args::kDLse);
  // Past the division of the logits: the gradient of the product.
  backward.scale = static_cast<float>(s.token_loss_weight() / s.logits_divisor);
  backward.weight = ctx.f32(args::kDWeights);
  backward.d_logits = ctx.tensor(args::kDLogitsGrad);
  ops::CrossEntropyBackward(backward, stream);
  return absl::OkStatus();
}

}  // namespace weft::layers

// Final norm and output projection, whose result is divided. With tied
// embeddings the projection's weight and gradient are those of the embedding
// table; the plan says so.
#include "kernels/ops/elementwise/elementwise.h"
#include "model/decoder.h"
#include "worker/layers/linear.h"
#include "worker/layers/nodes.h"

namespace weft::layers {
namespace {

namespace args = model::head;

Linear OutputSize(const model::Shape& s) {
  return {s.tokens, s.hidden, s.vocab};
}

}  // namespace

absl::Status HeadForward(const NodeContext& ctx, device::Stream& stream) {
  const model::Shape& s = *ctx.shape;
  NormForward(s, ctx.tensor(args::kX), ctx.params[args::kNorm],
              ctx.tensor(args::kXn), ctx.f32(args::kRstd), stream);
  Forward(OutputSize(s), ctx.tensor(args::kXn), ctx.params[args::kOutputW],
          ctx.tensor(args::kLogits), stream);
  if (s.logits_divisor == 1) return absl::OkStatus();
  ops::ScaleArgs divide;
  divide.count = s.tokens * s.vocab;
  divide.factor = static_cast<float>(1 / s.logits_divisor);
  divide.x = ctx.tensor(args::kLogits);
  divide.out = ctx.tensor(args::kLogits);
  ops::Scale(divide, stream);
  return absl::OkStatus();
}

absl::Status HeadDgrad(const NodeContext& ctx, device::Stream& stream) {
  const model::Shape& s = *ctx.shape;
  Dgrad(OutputSize(s), ctx.tensor(args::kDLogitsGrad),
        ctx.params[args::kOutputW], ctx.tensor(args::kDXnGrad), stream);
  NormBackwardArgs norm;
  norm.x = ctx.tensor(args::kDX);
  norm.weight = ctx.params[args::kNorm];
  norm.rstd = ctx.f32(args::kDRstd);
  norm.dy = ctx.tensor(args::kDXnGrad);
  norm.dx = ctx.tensor(args::kDDx);
  norm.dweight = ctx.grads[args::kGNorm];
  NormBackward(s, norm, stream);
  return absl::OkStatus();
}

absl::Status HeadWgrad(const NodeContext& ctx, device::Stream& stream) {
  Wgrad(OutputSize(*ctx.shape), ctx.tensor(args::kWLogitsGrad),
        ctx.tensor(args::kWXn), ctx.grads[args::kGOutput], stream);
  return absl::OkStatus();
}

}  // namespace weft::layers

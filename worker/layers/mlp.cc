// The dense feed-forward block: y = x + down(act(up(norm2(x)))).
#include "model/decoder.h"
#include "worker/layers/activation.h"
#include "worker/layers/linear.h"
#include "worker/layers/nodes.h"
#include "worker/layers/residual.h"

namespace weft::layers {
namespace {

namespace args = model::mlp;

Linear UpSize(const model::Shape& s) {
  return {s.tokens, s.hidden, s.up_columns(s.ffn)};
}
Linear DownSize(const model::Shape& s) { return {s.tokens, s.ffn, s.hidden}; }

void ActForward(const NodeContext& ctx, device::Stream& stream) {
  const model::Shape& s = *ctx.shape;
  ActivationForwardArgs act;
  act.rows = s.tokens;
  act.ffn = s.ffn;
  act.up = ctx.tensor(args::kUp);
  act.out = ctx.tensor(args::kAct);
  ActivationForward(s, act, stream);
}

}  // namespace

absl::Status MlpForward(const NodeContext& ctx, device::Stream& stream) {
  const model::Shape& s = *ctx.shape;
  if (ctx.Runs(args::kNormStep)) {
    NormForward(s, ctx.tensor(args::kX), ctx.params[args::kNorm2],
                ctx.tensor(args::kXn2), ctx.f32(args::kRstd2), stream);
  }
  if (ctx.Runs(args::kUpStep)) {
    Forward(UpSize(s), ctx.tensor(args::kXn2), ctx.params[args::kUpW],
            ctx.tensor(args::kUp), stream);
  }
  if (ctx.Runs(args::kActStep)) ActForward(ctx, stream);
  if (!ctx.Runs(args::kDownStep)) return absl::OkStatus();
  Forward(DownSize(s), ctx.tensor(args::kAct), ctx.params[args::kDownW],
          ctx.tensor(args::kY), stream);
  AddResidual(s, ctx.tensor(args::kX), ctx.tensor(args::kY), stream);
  return absl::OkStatus();
}

absl::Status MlpDgrad(const NodeContext& ctx, device::Stream& stream) {
  const model::Shape& s = *ctx.shape;
  const device::ConstTensor d_branch = BranchGrad(
      s, ctx.tensor(args::kDDy), ctx.tensor(args::kDBranchGrad), stream);
  Dgrad(DownSize(s), d_branch, ctx.params[args::kDownW],
        ctx.tensor(args::kDActGrad), stream);
  ActivationBackwardArgs act;
  act.rows = s.tokens;
  act.ffn = s.ffn;
  act.up = ctx.tensor(args::kDUp);
  act.d_out = ctx.tensor(args::kDActGrad);
  act.d_up = ctx.tensor(args::kDUpGrad);
  ActivationBackward(s, act, stream);
  Dgrad(UpSize(s), ctx.tensor(args::kDUpGrad), ctx.params[args::kUpW],
        ctx.tensor(args::kDXn2Grad), stream);
  NormBackwardArgs norm;
  norm.x = ctx.tensor(args::kDX);
  norm.weight = ctx.params[args::kNorm2];
  norm.rstd = ctx.f32(args::kDRstd2);
  norm.dy = ctx.tensor(args::kDXn2Grad);
  norm.add = ctx.tensor(args::kDDy);
  norm.dx = ctx.tensor(args::kDDx);
  norm.dweight = ctx.grads[args::kGNorm2];
  NormBackward(s, norm, stream);
  return absl::OkStatus();
}

absl::Status MlpWgrad(const NodeContext& ctx, device::Stream& stream) {
  const model::Shape& s = *ctx.shape;
  Wgrad(UpSize(s), ctx.tensor(args::kWUpGrad), ctx.tensor(args::kWXn2),
        ctx.grads[args::kGUp], stream);
  Wgrad(DownSize(s), ctx.tensor(args::kWBranchGrad), ctx.tensor(args::kWAct),
        ctx.grads[args::kGDown], stream);
  return absl::OkStatus();
}

}  // namespace weft::layers

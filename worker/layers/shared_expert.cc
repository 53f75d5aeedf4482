// The shared expert: a feed-forward of every token, which combine adds to what
// the chosen experts give. A gate is a factor of a token's whole row.
#include "kernels/ops/elementwise/elementwise.h"
#include "model/decoder.h"
#include "worker/layers/activation.h"
#include "worker/layers/linear.h"
#include "worker/layers/nodes.h"

namespace weft::layers {
namespace {

namespace args = model::shared_expert;

Linear UpSize(const model::Shape& s) {
  return {s.tokens, s.hidden, s.up_columns(s.shared_ffn)};
}
Linear DownSize(const model::Shape& s) {
  return {s.tokens, s.shared_ffn, s.hidden};
}
Linear GateSize(const model::Shape& s) { return {s.tokens, s.hidden, 1}; }

void GateForward(const NodeContext& ctx, device::Stream& stream) {
  const model::Shape& s = *ctx.shape;
  float* gate = ctx.f32(args::kGate);
  Forward(GateSize(s), ctx.tensor(args::kXn2), ctx.params[args::kGateW], gate,
          stream);
  ops::SigmoidArgs sigmoid;
  sigmoid.count = s.tokens;
  sigmoid.x = gate;
  sigmoid.out = gate;
  ops::Sigmoid(sigmoid, stream);
}

// The gate is a factor of the activation's rows: down is linear.
void UpForward(const NodeContext& ctx, device::Stream& stream) {
  const model::Shape& s = *ctx.shape;
  if (s.shared_gate) GateForward(ctx, stream);
  Forward(UpSize(s), ctx.tensor(args::kXn2), ctx.params[args::kUpW],
          ctx.tensor(args::kUp), stream);
  ActivationForwardArgs act;
  act.rows = s.tokens;
  act.ffn = s.shared_ffn;
  act.up = ctx.tensor(args::kUp);
  act.prob = ctx.f32(args::kGate);
  act.out = ctx.tensor(args::kAct);
  ActivationForward(s, act, stream);
}

// From the gradient of the gate to that of its input, which is added to d_xn2.
void GateDgrad(const NodeContext& ctx, device::Stream& stream) {
  const model::Shape& s = *ctx.shape;
  float* d_gate = ctx.f32(args::kDGateGrad);
  ops::SigmoidDgradArgs sigmoid;
  sigmoid.count = s.tokens;
  sigmoid.y = ctx.f32(args::kDGate);
  sigmoid.dy = d_gate;
  sigmoid.out = d_gate;
  ops::SigmoidDgrad(sigmoid, stream);
  AddDgrad(GateSize(s), d_gate, ctx.params[args::kGateW],
           ctx.tensor(args::kDXn2Grad), stream);
}

}  // namespace

absl::Status SharedExpertForward(const NodeContext& ctx,
                                 device::Stream& stream) {
  if (ctx.Runs(args::kUpStep)) UpForward(ctx, stream);
  if (ctx.Runs(args::kDownStep)) {
    Forward(DownSize(*ctx.shape), ctx.tensor(args::kAct),
            ctx.params[args::kDownW], ctx.tensor(args::kOut), stream);
  }
  return absl::OkStatus();
}

absl::Status SharedExpertDgrad(const NodeContext& ctx, device::Stream& stream) {
  const model::Shape& s = *ctx.shape;
  Dgrad(DownSize(s), ctx.tensor(args::kDBranchGrad), ctx.params[args::kDownW],
        ctx.tensor(args::kDActGrad), stream);
  ActivationBackwardArgs act;
  act.rows = s.tokens;
  act.ffn = s.shared_ffn;
  act.up = ctx.tensor(args::kDUp);
  act.prob = ctx.f32(args::kDGate);
  act.d_out = ctx.tensor(args::kDActGrad);
  act.d_up = ctx.tensor(args::kDUpGrad);
  act.d_prob = ctx.f32(args::kDGateGrad);
  ActivationBackward(s, act, stream);
  Dgrad(UpSize(s), ctx.tensor(args::kDUpGrad), ctx.params[args::kUpW],
        ctx.tensor(args::kDXn2Grad), stream);
  if (s.shared_gate) GateDgrad(ctx, stream);
  return absl::OkStatus();
}

absl::Status SharedExpertWgrad(const NodeContext& ctx, device::Stream& stream) {
  const model::Shape& s = *ctx.shape;
  Wgrad(UpSize(s), ctx.tensor(args::kWUpGrad), ctx.tensor(args::kWXn2),
        ctx.grads[args::kGUp], stream);
  Wgrad(DownSize(s), ctx.tensor(args::kWBranchGrad), ctx.tensor(args::kWAct),
        ctx.grads[args::kGDown], stream);
  if (!s.shared_gate) return absl::OkStatus();
  Wgrad(GateSize(s), ctx.f32(args::kWGateGrad), ctx.tensor(args::kWXn2),
        ctx.grads[args::kGGate], stream);
  return absl::OkStatus();
}

}  // namespace weft::layers

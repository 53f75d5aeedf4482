// Grouped SwiGLU experts over rows ordered by (local expert, source, token).
// An expert without rows takes part and gets a zero gradient.
#include "kernels/ops/grouped_gemm/grouped_gemm.h"
#include "kernels/ops/swiglu/swiglu.h"
#include "model/decoder.h"
#include "worker/layers/nodes.h"
#include "worker/layers/routing.h"

namespace weft::layers {
namespace {

namespace args = model::experts;

// Fills the workspace's offsets from `counts`; returns the rows received.
int64_t PrepareOffsets(const NodeContext& ctx, const int32_t* counts) {
  const Routing routing(*ctx.shape, ctx.ep_rank, counts);
  routing.FillExpertOffsets(ctx.workspace.offsets);
  return ctx.workspace.offsets[ctx.shape->local_experts()];
}

ops::GroupedShape Grouped(const NodeContext& ctx, int64_t in, int64_t out) {
  ops::GroupedShape shape;
  shape.num_experts = ctx.shape->local_experts();
  shape.in = in;
  shape.out = out;
  shape.offsets = ctx.workspace.offsets;
  return shape;
}

ops::GroupedShape GateUp(const NodeContext& ctx) {
  return Grouped(ctx, ctx.shape->hidden, 2 * ctx.shape->expert_ffn);
}

ops::GroupedShape Down(const NodeContext& ctx) {
  return Grouped(ctx, ctx.shape->expert_ffn, ctx.shape->hidden);
}

}  // namespace

absl::Status ExpertsForward(const NodeContext& ctx, device::Stream& stream) {
  const int64_t rows = PrepareOffsets(ctx, ctx.i32(args::kAll));
  ops::GroupedForward({GateUp(ctx), ctx.f32(args::kRows),
                       ctx.params[args::kGateUpW], ctx.f32(args::kGateUp)},
                      stream);
  ops::SwigluForwardArgs act;
  act.rows = rows;
  act.ffn = ctx.shape->expert_ffn;
  act.gate_up = ctx.f32(args::kGateUp);
  act.prob = ctx.f32(args::kProb);
  act.out = ctx.f32(args::kAct);
  ops::SwigluForward(act, stream);
  ops::GroupedForward({Down(ctx), ctx.f32(args::kAct), ctx.params[args::kDownW],
                       ctx.f32(args::kOut)},
                      stream);
  return absl::OkStatus();
}

absl::Status ExpertsDgrad(const NodeContext& ctx, device::Stream& stream) {
  const int64_t rows = PrepareOffsets(ctx, ctx.i32(args::kDAll));
  ops::GroupedDgrad({Down(ctx), ctx.f32(args::kDOutGrad),
                     ctx.params[args::kDownW], ctx.f32(args::kDActGrad)},
                    stream);
  ops::SwigluBackwardArgs act;
  act.rows = rows;
  act.ffn = ctx.shape->expert_ffn;
  act.gate_up = ctx.f32(args::kDGateUp);
  act.prob = ctx.f32(args::kDProb);
  act.d_out = ctx.f32(args::kDActGrad);
  act.d_gate_up = ctx.f32(args::kDGateUpGrad);
  act.d_prob = ctx.f32(args::kDProbGrad);
  ops::SwigluBackward(act, stream);
  ops::GroupedDgrad({GateUp(ctx), ctx.f32(args::kDGateUpGrad),
                     ctx.params[args::kGateUpW], ctx.f32(args::kDRowsGrad)},
                    stream);
  return absl::OkStatus();
}

absl::Status ExpertsWgrad(const NodeContext& ctx, device::Stream& stream) {
  PrepareOffsets(ctx, ctx.i32(args::kWAll));
  const Grad& gate_up = ctx.grads[args::kGateUpW];
  ops::GroupedWgrad({GateUp(ctx), ctx.f32(args::kWGateUpGrad),
                     ctx.f32(args::kWRows), gate_up.data, gate_up.accumulate},
                    stream);
  const Grad& down = ctx.grads[args::kDownW];
  ops::GroupedWgrad({Down(ctx), ctx.f32(args::kWOutGrad), ctx.f32(args::kWAct),
                     down.data, down.accumulate},
                    stream);
  return absl::OkStatus();
}

}  // namespace weft::layers

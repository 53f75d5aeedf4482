// Grouped experts over rows ordered by (local expert, source, token).
// An expert without rows takes part and gets a zero gradient.
#include "kernels/ops/grouped_gemm/grouped_gemm.h"
#include "model/decoder.h"
#include "worker/layers/activation.h"
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
  shape.max_rows = ctx.shape->max_received_rows();
  return shape;
}

ops::GroupedShape Up(const NodeContext& ctx) {
  return Grouped(ctx, ctx.shape->hidden,
                 ctx.shape->up_columns(ctx.shape->expert_ffn));
}

ops::GroupedShape Down(const NodeContext& ctx) {
  return Grouped(ctx, ctx.shape->expert_ffn, ctx.shape->hidden);
}

}  // namespace

absl::Status ExpertsForward(const NodeContext& ctx, device::Stream& stream) {
  const int64_t rows = PrepareOffsets(ctx, ctx.i32(args::kAll));
  ops::GroupedForward({Up(ctx), ctx.tensor(args::kRows), ctx.params[args::kUpW],
                       ctx.tensor(args::kUp)},
                      stream);
  ActivationForwardArgs act;
  act.rows = rows;
  act.ffn = ctx.shape->expert_ffn;
  act.up = ctx.tensor(args::kUp);
  act.prob = ctx.f32(args::kProb);
  act.out = ctx.tensor(args::kAct);
  ActivationForward(*ctx.shape, act, stream);
  ops::GroupedForward({Down(ctx), ctx.tensor(args::kAct),
                       ctx.params[args::kDownW], ctx.tensor(args::kOut)},
                      stream);
  return absl::OkStatus();
}

absl::Status ExpertsDgrad(const NodeContext& ctx, device::Stream& stream) {
  const int64_t rows = PrepareOffsets(ctx, ctx.i32(args::kDAll));
  ops::GroupedDgrad({Down(ctx), ctx.tensor(args::kDOutGrad),
                     ctx.params[args::kDownW], ctx.tensor(args::kDActGrad)},
                    stream);
  ActivationBackwardArgs act;
  act.rows = rows;
  act.ffn = ctx.shape->expert_ffn;
  act.up = ctx.tensor(args::kDUp);
  act.prob = ctx.f32(args::kDProb);
  act.d_out = ctx.tensor(args::kDActGrad);
  act.d_up = ctx.tensor(args::kDUpGrad);
  act.d_prob = ctx.f32(args::kDProbGrad);
  ActivationBackward(*ctx.shape, act, stream);
  ops::GroupedDgrad({Up(ctx), ctx.tensor(args::kDUpGrad),
                     ctx.params[args::kUpW], ctx.tensor(args::kDRowsGrad)},
                    stream);
  return absl::OkStatus();
}

absl::Status ExpertsWgrad(const NodeContext& ctx, device::Stream& stream) {
  PrepareOffsets(ctx, ctx.i32(args::kWAll));
  const Grad& up = ctx.grads[args::kUpW];
  if (up.data != nullptr) {
    ops::GroupedWgrad({Up(ctx), ctx.tensor(args::kWUpGrad),
                       ctx.tensor(args::kWRows), up.data, up.accumulate},
                      stream);
  }
  const Grad& down = ctx.grads[args::kDownW];
  if (down.data != nullptr) {
    ops::GroupedWgrad({Down(ctx), ctx.tensor(args::kWOutGrad),
                       ctx.tensor(args::kWAct), down.data, down.accumulate},
                      stream);
  }
  return absl::OkStatus();
}

}  // namespace weft::layers

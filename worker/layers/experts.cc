// Grouped experts over rows ordered by (local expert, source, token). How many
// they are the host knows from counts or, with gathered tokens, the device.
// An expert without rows takes part and gets a zero gradient.
#include "kernels/ops/grouped_gemm/grouped_gemm.h"
#include "model/decoder.h"
#include "worker/layers/activation.h"
#include "worker/layers/nodes.h"
#include "worker/layers/routing.h"

namespace weft::layers {
namespace {

namespace args = model::experts;

// Rows of this rank's experts.
struct ReceivedRows {
  const int64_t* offsets = nullptr;    // [local_experts + 1]
  int64_t rows = 0;                    // a bound, with `row_count`
  const int64_t* row_count = nullptr;  // see kernels/ops/math/row_count.h
};

// `offsets` is null unless the device alone knows them; else the workspace's
// are filled from `counts`.
ReceivedRows RowsOf(const NodeContext& ctx, const int32_t* counts,
                    const int64_t* offsets) {
  const int64_t experts = ctx.shape->local_experts();
  if (offsets != nullptr) {
    return {offsets, ctx.shape->max_received_rows(), offsets + experts};
  }
  const Routing routing(*ctx.shape, ctx.ep_rank, counts);
  routing.FillExpertOffsets(ctx.workspace.offsets);
  return {ctx.workspace.offsets, ctx.workspace.offsets[experts], nullptr};
}

ops::GroupedShape Grouped(const NodeContext& ctx, const ReceivedRows& rows,
                          int64_t in, int64_t out) {
  ops::GroupedShape shape;
  shape.num_experts = ctx.shape->local_experts();
  shape.in = in;
  shape.out = out;
  shape.offsets = rows.offsets;
  shape.max_rows = ctx.shape->max_received_rows();
  return shape;
}

ops::GroupedShape Up(const NodeContext& ctx, const ReceivedRows& rows) {
  return Grouped(ctx, rows, ctx.shape->hidden,
                 ctx.shape->up_columns(ctx.shape->expert_ffn));
}

ops::GroupedShape Down(const NodeContext& ctx, const ReceivedRows& rows) {
  return Grouped(ctx, rows, ctx.shape->expert_ffn, ctx.shape->hidden);
}

void ActForward(const NodeContext& ctx, const ReceivedRows& rows,
                device::Stream& stream) {
  ActivationForwardArgs act;
  act.rows = rows.rows;
  act.row_count = rows.row_count;
  act.ffn = ctx.shape->expert_ffn;
  act.up = ctx.tensor(args::kUp);
  act.prob = ctx.f32(args::kProb);
  act.out = ctx.tensor(args::kAct);
  ActivationForward(*ctx.shape, act, stream);
}

}  // namespace

absl::Status ExpertsForward(const NodeContext& ctx, device::Stream& stream) {
  const ReceivedRows rows =
      RowsOf(ctx, ctx.i32(args::kAll), ctx.i64(args::kOffsets));
  if (ctx.Runs(args::kUpStep)) {
    ops::GroupedForward({Up(ctx, rows), ctx.tensor(args::kRows),
                         ctx.params[args::kUpW], ctx.tensor(args::kUp)},
                        stream);
  }
  if (ctx.Runs(args::kActStep)) ActForward(ctx, rows, stream);
  if (!ctx.Runs(args::kDownStep)) return absl::OkStatus();
  ops::GroupedForward({Down(ctx, rows), ctx.tensor(args::kAct),
                       ctx.params[args::kDownW], ctx.tensor(args::kOut)},
                      stream);
  return absl::OkStatus();
}

absl::Status ExpertsDgrad(const NodeContext& ctx, device::Stream& stream) {
  const ReceivedRows rows =
      RowsOf(ctx, ctx.i32(args::kDAll), ctx.i64(args::kDOffsets));
  ops::GroupedDgrad({Down(ctx, rows), ctx.tensor(args::kDOutGrad),
                     ctx.params[args::kDownW], ctx.tensor(args::kDActGrad)},
                    stream);
  ActivationBackwardArgs act;
  act.rows = rows.rows;
  act.row_count = rows.row_count;
  act.ffn = ctx.shape->expert_ffn;
  act.up = ctx.tensor(args::kDUp);
  act.prob = ctx.f32(args::kDProb);
  act.d_out = ctx.tensor(args::kDActGrad);
  act.d_up = ctx.tensor(args::kDUpGrad);
  act.d_prob = ctx.f32(args::kDProbGrad);
  ActivationBackward(*ctx.shape, act, stream);
  ops::GroupedDgrad({Up(ctx, rows), ctx.tensor(args::kDUpGrad),
                     ctx.params[args::kUpW], ctx.tensor(args::kDRowsGrad)},
                    stream);
  return absl::OkStatus();
}

absl::Status ExpertsWgrad(const NodeContext& ctx, device::Stream& stream) {
  const ReceivedRows rows =
      RowsOf(ctx, ctx.i32(args::kWAll), ctx.i64(args::kWOffsets));
  const Grad& up = ctx.grads[args::kUpW];
  if (up.data != nullptr) {
    ops::GroupedWgrad({Up(ctx, rows), ctx.tensor(args::kWUpGrad),
                       ctx.tensor(args::kWRows), up.data, up.accumulate},
                      stream);
  }
  const Grad& down = ctx.grads[args::kDownW];
  if (down.data != nullptr) {
    ops::GroupedWgrad({Down(ctx, rows), ctx.tensor(args::kWOutGrad),
                       ctx.tensor(args::kWAct), down.data, down.accumulate},
                      stream);
  }
  return absl::OkStatus();
}

}  // namespace weft::layers

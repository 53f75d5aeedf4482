#include "base/status_macros.h"
#include "kernels/ops/elementwise/elementwise.h"
#include "model/decoder.h"
#include "worker/layers/exchange.h"
#include "worker/layers/gathered.h"
#include "worker/layers/nodes.h"

namespace weft::layers {
namespace {

namespace args = model::dispatch;

// Where fewer rows are sent than there is room for, no gradient comes back of
// the rest: it is zero.
void ClearUnsent(const NodeContext& ctx, const Routing& routing,
                 device::Stream& stream) {
  const model::Shape& s = *ctx.shape;
  const int64_t sent = routing.SentRows();
  const int64_t rest = s.sent_rows() - sent;
  if (rest == 0) return;
  ops::Fill({rest * s.hidden, 0.0f,
             ctx.tensor(args::kDSendRowsGrad) + sent * s.hidden},
            stream);
  ops::Fill({rest, 0.0f, ctx.f32(args::kDSendProbGrad) + sent}, stream);
}

}  // namespace

absl::Status DispatchForward(const NodeContext& ctx, device::Stream& stream) {
  const model::Shape& s = *ctx.shape;
  if (s.gathers_tokens()) return gathered::DispatchForward(ctx, stream);
  const Routing routing(s, ctx.ep_rank, ctx.i32(args::kAll));
  RETURN_IF_ERROR(routing.CheckBound(s.max_received_rows()));
  if (ctx.Runs(args::kRowsStep)) {
    RETURN_IF_ERROR(SendToExperts(ctx, routing, ctx.tensor(args::kSendRows),
                                  ctx.tensor(args::kRows), s.hidden, stream));
  }
  if (!ctx.Runs(args::kProbStep)) return absl::OkStatus();
  return SendToExperts(ctx, routing, ctx.f32(args::kSendProb),
                       ctx.f32(args::kProb), 1, stream);
}

absl::Status DispatchDgrad(const NodeContext& ctx, device::Stream& stream) {
  const model::Shape& s = *ctx.shape;
  if (s.gathers_tokens()) return gathered::DispatchDgrad(ctx, stream);
  const Routing routing(s, ctx.ep_rank, ctx.i32(args::kDAll));
  ClearUnsent(ctx, routing, stream);
  RETURN_IF_ERROR(SendBack(ctx, routing, ctx.tensor(args::kDRowsGrad),
                           ctx.tensor(args::kDSendRowsGrad), s.hidden, stream));
  return SendBack(ctx, routing, ctx.f32(args::kDProbGrad),
                  ctx.f32(args::kDSendProbGrad), 1, stream);
}

}  // namespace weft::layers

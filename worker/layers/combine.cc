// combine: the experts' rows, or sums of them, go home and are summed in one
// fixed order: for a token, inside each rank that owns experts by ascending
// expert, then those sums over ranks ascending, then y = (x + m shared_out) + m
// that sum, with the residual_multiplier m.
#include "base/status_macros.h"
#include "kernels/ops/permute/permute.h"
#include "model/decoder.h"
#include "worker/layers/exchange.h"
#include "worker/layers/gathered.h"
#include "worker/layers/nodes.h"
#include "worker/layers/residual.h"

namespace weft::layers {
namespace {

namespace args = model::combine;

absl::Status RowsBack(const NodeContext& ctx, device::Stream& stream) {
  const model::Shape& s = *ctx.shape;
  if (s.gathers_tokens()) return gathered::PartialSumsBack(ctx, stream);
  const Routing routing(s, ctx.ep_rank, ctx.i32(args::kAll));
  return SendBack(ctx, routing, ctx.tensor(args::kOut), ctx.tensor(args::kBack),
                  s.hidden, stream);
}

}  // namespace

absl::Status CombineForward(const NodeContext& ctx, device::Stream& stream) {
  const model::Shape& s = *ctx.shape;
  RETURN_IF_ERROR(RowsBack(ctx, stream));
  ops::CombineRowsArgs sum;
  sum.tokens = s.tokens;
  sum.topk = s.top_k;
  sum.hidden = s.hidden;
  sum.experts_per_rank = CombinedPerRank(s);
  sum.rows = ctx.tensor(args::kBack);
  sum.sorted_rows = ctx.i32(args::kSortedRows);
  sum.sorted_experts = ctx.i32(args::kSortedExperts);
  sum.add1 = ctx.tensor(args::kX);
  if (s.shared_ffn > 0) sum.add2 = ctx.tensor(args::kSharedOut);
  sum.out = ctx.tensor(args::kY);
  sum.factor = static_cast<float>(s.residual_multiplier);
  ops::CombineRows(sum, stream);
  return absl::OkStatus();
}

absl::Status CombineDgrad(const NodeContext& ctx, device::Stream& stream) {
  const model::Shape& s = *ctx.shape;
  const device::ConstTensor dy = BranchGrad(
      s, ctx.tensor(args::kDDy), ctx.tensor(args::kDBranchGrad), stream);
  if (s.gathers_tokens()) return gathered::CombineDgrad(ctx, dy, stream);
  ops::GatherRowsArgs gather;
  gather.rows = s.sent_rows();
  gather.hidden = s.hidden;
  gather.src = dy;
  gather.index = ctx.i32(args::kDTokenOfRow);
  gather.out = ctx.tensor(args::kDBack);
  ops::GatherRows(gather, stream);
  const Routing routing(s, ctx.ep_rank, ctx.i32(args::kDAll));
  return SendToExperts(ctx, routing, ctx.tensor(args::kDBack),
                       ctx.tensor(args::kDOutGrad), s.hidden, stream);
}

}  // namespace weft::layers

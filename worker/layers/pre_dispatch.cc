// What comes before the dispatch: norm2, router, permutation into the send
// buffer.
#include "kernels/ops/capacity/capacity.h"
#include "kernels/ops/elementwise/elementwise.h"
#include "kernels/ops/permute/permute.h"
#include "kernels/ops/router/router.h"
#include "model/decoder.h"
#include "worker/layers/exchange.h"
#include "worker/layers/linear.h"
#include "worker/layers/nodes.h"
#include "worker/layers/router_loss.h"

namespace weft::layers {
namespace {

namespace pd = model::pre_dispatch;

ops::RouterConfig RouterConfigOf(const model::Shape& s) {
  ops::RouterConfig config;
  config.num_experts = s.experts;
  config.topk = s.top_k;
  config.score = s.sigmoid_scores ? ops::RouterScore::kSigmoid
                                  : ops::RouterScore::kSoftmax;
  config.normalize_topk = s.renormalize_top_k;
  config.scaling = static_cast<float>(s.routing_scale);
  config.groups = s.expert_groups.groups;
  config.kept_groups = s.expert_groups.kept;
  config.group_scores = s.expert_groups.scores;
  config.balanced = s.balanced_routing;
  return config;
}

Linear RouterSize(const model::Shape& s) {
  return {s.tokens, s.hidden, s.experts};
}
// The bias of the step, in memory that is near.
const float* CopyBias(const NodeContext& ctx, device::Stream& stream) {
  if (!ctx.shape->expert_bias) return nullptr;
  ops::CopyArgs copy;
  copy.count = ctx.shape->experts;
  copy.x = ctx.expert_bias;
  copy.out = ctx.f32(pd::kBias);
  ops::Copy(copy, stream);
  return ctx.f32(pd::kBias);
}

void Route(const NodeContext& ctx, device::Stream& stream) {
  const model::Shape& s = *ctx.shape;
  Forward(RouterSize(s), ctx.tensor(pd::kXn2), ctx.params[pd::kRouterW],
          ctx.f32(pd::kLogits), stream);
  ops::RouterForwardArgs router;
  router.config = RouterConfigOf(s);
  router.tokens = s.tokens;
  router.logits = ctx.f32(pd::kLogits);
  router.scores = ctx.f32(pd::kScores);
  router.topk_index = ctx.i32(pd::kTopKIndex);
  router.topk_prob = ctx.f32(pd::kTopKProb);
  router.counts = ctx.i32(pd::kCountsOut);
  router.bias = CopyBias(ctx, stream);
  if (s.plain_choices()) router.plain_index = ctx.i32(pd::kPlainIndex);
  router.given = ctx.i32(pd::kReplayIndex);
  ops::RouterForward(router, stream);
  RouterLossForward(ctx, stream);
}

ops::CountChoicesArgs CountsOf(const NodeContext& ctx, const int32_t* index,
                               int32_t* counts) {
  ops::CountChoicesArgs count;
  count.tokens = ctx.shape->tokens;
  count.topk = ctx.shape->top_k;
  count.num_experts = ctx.shape->experts;
  count.index = index;
  count.counts = counts;
  return count;
}

// Drops what experts have no room for, and makes the counts those of the rows
// that are sent. Returns the choices that stay.
const int32_t* KeepWithinCapacity(const NodeContext& ctx,
                                  device::Stream& stream) {
  const model::Shape& s = *ctx.shape;
  int32_t* kept = ctx.i32(pd::kKeptIndex);
  ops::KeepWithinCapacityArgs keep;
  keep.tokens = s.tokens;
  keep.topk = s.top_k;
  keep.num_experts = s.experts;
  keep.capacity = s.capacity();
  keep.topk_index = ctx.i32(pd::kTopKIndex);
  keep.topk_prob = ctx.f32(pd::kTopKProb);
  keep.kept_index = kept;
  keep.scratch = ctx.i32(pd::kSortedRows);  // which is written later
  ops::KeepWithinCapacity(keep, stream);
  int32_t* counts = ctx.i32(pd::kCountsOut);
  if (s.pad_to_capacity) {
    ops::FillCounts({s.experts, static_cast<int32_t>(s.capacity()), counts},
                    stream);
  } else {
    ops::CountChoices(CountsOf(ctx, kept, counts), stream);
  }
  return kept;
}

// Adds the valid tokens that experts keep to those of the step.
void CountForBias(const NodeContext& ctx, const int32_t* kept,
                  device::Stream& stream) {
  int32_t* counts = ctx.i32(pd::kKeptCounts);
  ops::CountChoicesArgs count = CountsOf(ctx, kept, counts);
  count.valid = ctx.i32(pd::kValid);
  ops::CountChoices(count, stream);
  ops::AddCounts({ctx.shape->experts, counts, ctx.f64(pd::kPreviousCounts),
                  ctx.f64(pd::kStepCounts)},
                 stream);
}

// Where what comes back of this rank's tokens will lie; they are gathered as
// they are.
void IndexGathered(const NodeContext& ctx, const int32_t* topk_index,
                   device::Stream& stream) {
  const model::Shape& s = *ctx.shape;
  ops::IndexPartialSumsArgs index;
  index.tokens = s.tokens;
  index.topk = s.top_k;
  index.experts_per_rank = s.local_experts();
  index.topk_index = topk_index;
  index.element_of_slot = ctx.i32(pd::kRowOfSlot);
  index.sorted_rows = ctx.i32(pd::kSortedRows);
  index.sorted_ranks = ctx.i32(pd::kSortedExperts);
  ops::IndexPartialSums(index, stream);
}

void Permute(const NodeContext& ctx, const int32_t* index,
             device::Stream& stream) {
  const model::Shape& s = *ctx.shape;
  if (s.gathers_tokens()) return IndexGathered(ctx, index, stream);
  ops::BuildPermutationArgs build;
  build.tokens = s.tokens;
  build.topk = s.top_k;
  build.num_experts = s.experts;
  build.topk_index = index;
  build.offsets = ctx.i64(pd::kOffsets);
  build.row_of_slot = ctx.i32(pd::kRowOfSlot);
  build.slot_of_row = ctx.i32(pd::kSlotOfRow);
  build.token_of_row = ctx.i32(pd::kTokenOfRow);
  build.sorted_rows = ctx.i32(pd::kSortedRows);
  build.sorted_experts = ctx.i32(pd::kSortedExperts);
  if (s.capacity_factor > 0) build.rows = s.sent_rows();
  if (s.pad_to_capacity) build.expert_rows = s.capacity();
  ops::BuildPermutation(build, stream);

  ops::GatherElementsArgs probs;
  probs.count = s.sent_rows();
  probs.src = ctx.f32(pd::kTopKProb);
  probs.index = ctx.i32(pd::kSlotOfRow);
  probs.out = ctx.f32(pd::kSendProb);
  ops::GatherElements(probs, stream);
}

// What a router chooses, and where its rows will lie.
void RouteForward(const NodeContext& ctx, device::Stream& stream) {
  Route(ctx, stream);
  const int32_t* kept = ctx.shape->capacity_factor > 0
                            ? KeepWithinCapacity(ctx, stream)
                            : ctx.i32(pd::kTopKIndex);
  if (ctx.shape->expert_bias) CountForBias(ctx, kept, stream);
  Permute(ctx, kept, stream);
}

// Nothing where tokens are gathered: they go as they are.
void SendForward(const NodeContext& ctx, device::Stream& stream) {
  const model::Shape& s = *ctx.shape;
  if (s.gathers_tokens()) return;
  ops::GatherRowsArgs rows;
  rows.rows = s.sent_rows();
  rows.hidden = s.hidden;
  rows.src = ctx.tensor(pd::kXn2);
  rows.index = ctx.i32(pd::kTokenOfRow);
  rows.out = ctx.tensor(pd::kSendRows);
  ops::GatherRows(rows, stream);
}

// Backward of Permute and Route: writes d_xn2, the shared expert's part first,
// and the router's gradient.
void RouteBackward(const NodeContext& ctx, device::Stream& stream) {
  const model::Shape& s = *ctx.shape;
  const device::Tensor& d_xn2 = ctx.tensor(pd::kDXn2Grad);
  ops::CombineRowsArgs sum;
  sum.tokens = s.tokens;
  sum.topk = s.top_k;
  sum.hidden = s.hidden;
  sum.experts_per_rank = CombinedPerRank(s);
  sum.rows = ctx.tensor(pd::kDSendRows);
  sum.sorted_rows = ctx.i32(pd::kDSortedRows);
  sum.sorted_experts = ctx.i32(pd::kDSortedExperts);
  sum.add1 = ctx.tensor(pd::kDSharedXn2Grad);
  sum.out = d_xn2;
  ops::CombineRows(sum, stream);

  ops::GatherElementsArgs probs;
  probs.count = s.tokens * s.top_k;
  probs.src = ctx.f32(pd::kDSendProb);
  probs.index = ctx.i32(pd::kDRowOfSlot);
  probs.out = ctx.f32(pd::kDTopKGrad);
  ops::GatherElements(probs, stream);

  ops::RouterBackwardArgs router;
  router.config = RouterConfigOf(s);
  router.tokens = s.tokens;
  router.scores = ctx.f32(pd::kDScores);
  router.topk_index = ctx.i32(pd::kDTopKIndex);
  router.topk_prob = ctx.f32(pd::kDTopKProb);
  router.d_topk_prob = ctx.f32(pd::kDTopKGrad);
  router.d_scores = RouterScoresGrad(ctx, stream);
  router.d_logits = ctx.f32(pd::kDLogitsGrad);
  ops::RouterBackward(router, stream);
  AddRouterLogitsGrad(ctx, stream);

  AddDgrad(RouterSize(s), ctx.f32(pd::kDLogitsGrad), ctx.params[pd::kRouterW],
           d_xn2, stream);
  Wgrad(RouterSize(s), ctx.f32(pd::kDLogitsGrad), ctx.tensor(pd::kDXn2),
        ctx.grads[pd::kGRouter], stream);
}

}  // namespace

absl::Status PreDispatchForward(const NodeContext& ctx,
                                device::Stream& stream) {
  if (ctx.Runs(pd::kNormStep)) {
    NormForward(*ctx.shape, ctx.tensor(pd::kX), ctx.params[pd::kNorm2],
                ctx.tensor(pd::kXn2), ctx.f32(pd::kRstd2), stream);
  }
  if (ctx.Runs(pd::kRouteStep)) RouteForward(ctx, stream);
  if (ctx.Runs(pd::kSendStep)) SendForward(ctx, stream);
  return absl::OkStatus();
}

absl::Status PreDispatchDgrad(const NodeContext& ctx, device::Stream& stream) {
  RouteBackward(ctx, stream);
  NormBackwardArgs norm;
  norm.x = ctx.tensor(pd::kDX);
  norm.weight = ctx.params[pd::kNorm2];
  norm.rstd = ctx.f32(pd::kDRstd2);
  norm.dy = ctx.tensor(pd::kDXn2Grad);
  norm.add = ctx.tensor(pd::kDDy);
  norm.dx = ctx.tensor(pd::kDDx);
  norm.dweight = ctx.grads[pd::kGNorm2];
  NormBackward(*ctx.shape, norm, stream);
  return absl::OkStatus();
}

}  // namespace weft::layers

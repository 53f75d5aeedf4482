#include "worker/layers/router_loss.h"

#include "kernels/ops/router_loss/router_loss.h"
#include "model/decoder.h"

namespace weft::layers {
namespace {

namespace pd = model::pre_dispatch;

double AllTokens(const model::Shape& s) {
  return static_cast<double>(s.tokens) * s.world;
}

// E / (k S^2), for the mean over the sequences of all ranks.
double SequenceFactor(const model::Shape& s) {
  const double tokens = s.sequence;
  const double sequences = static_cast<double>(s.microbatch) * s.world;
  return s.experts / (s.top_k * tokens * tokens * sequences);
}

double ZFactor(const model::Shape& s) { return 1 / AllTokens(s); }

// What a loss counts in the gradients of a rank, of which the reduction over
// ranks takes the mean; Weight() is a factor of it.
double GradWeight(const model::Shape& s, double coefficient) {
  return coefficient * s.router_loss_weight() * s.world;
}

// See model::loss_weights; null: 1.
const float* Weight(const NodeContext& ctx) {
  const float* weights = ctx.f32(pd::kDLossWeights);
  return weights == nullptr ? nullptr : weights + 1;
}

}  // namespace

double BalanceFactor(const model::Shape& s) {
  return s.experts / (s.top_k * AllTokens(s) * AllTokens(s));
}

void RouterLossForward(const NodeContext& ctx, device::Stream& stream) {
  const model::Shape& s = *ctx.shape;
  if (s.router_loss.z > 0) {
    ops::ZLoss({s.tokens, s.experts, ZFactor(s), ctx.f32(pd::kLogits),
                ctx.f32(pd::kRouterLse), ctx.f64(pd::kZLoss)},
               stream);
  }
  if (s.router_loss.sequence_aux > 0) {
    ops::GroupBalanceLoss(
        {s.microbatch, s.sequence, s.experts, s.top_k, SequenceFactor(s),
         ctx.f32(pd::kScores), ctx.i32(pd::kTopKIndex),
         ctx.i32(pd::kSequenceCounts), ctx.f64(pd::kSequenceAux)},
        stream);
  }
  if (s.router_loss.need_counts()) {
    ops::ScoreSums(
        {s.tokens, s.experts, ctx.f32(pd::kScores), ctx.f64(pd::kScoreSums)},
        stream);
  }
}

const float* RouterScoresGrad(const NodeContext& ctx, device::Stream& stream) {
  const model::Shape& s = *ctx.shape;
  const model::RouterCoefficients& c = s.router_loss;
  float* d_scores = ctx.f32(pd::kDScoresGrad);
  ops::BalanceGradArgs balance;
  balance.tokens = s.tokens;
  balance.num_experts = s.experts;
  balance.d_scores = d_scores;
  balance.weight = Weight(ctx);
  if (c.aux > 0) {
    balance.factor = GradWeight(s, c.aux) * BalanceFactor(s);
    balance.counts = ctx.f32(pd::kDBalanceCounts);
    ops::BalanceGrad(balance, stream);
  }
  if (c.global_aux > 0) {
    balance.factor =
        GradWeight(s, c.global_aux) * BalanceFactor(s) / (ctx.microbatch + 1);
    balance.counts = ctx.f32(pd::kDRunningCounts);
    balance.accumulate = c.aux > 0;
    ops::BalanceGrad(balance, stream);
  }
  if (c.sequence_aux > 0) {
    ops::GroupBalanceGrad(
        {s.microbatch, s.sequence, s.experts,
         GradWeight(s, c.sequence_aux) * SequenceFactor(s),
         ctx.i32(pd::kDSequenceCounts), d_scores, c.need_counts(), Weight(ctx)},
        stream);
  }
  return d_scores;
}

void AddRouterLogitsGrad(const NodeContext& ctx, device::Stream& stream) {
  const model::Shape& s = *ctx.shape;
  if (s.router_loss.z == 0) return;
  ops::ZGrad({s.tokens, s.experts, GradWeight(s, s.router_loss.z) * ZFactor(s),
              ctx.f32(pd::kDRouterLse), ctx.f32(pd::kDScores),
              ctx.f32(pd::kDLogitsGrad), Weight(ctx)},
             stream);
}

}  // namespace weft::layers

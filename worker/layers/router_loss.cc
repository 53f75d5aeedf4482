#include "worker/layers/router_loss.h"

#include "kernels/ops/capacity/capacity.h"
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

// One of ops::LossWeights; null: 1.
const float* At(const float* weights, int index) {
  return weights == nullptr ? nullptr : weights + index;
}

// Of the gradients of losses summed over choices and scores, and over tokens.
const float* BalanceGradWeight(const NodeContext& ctx) {
  return At(ctx.f32(pd::kDLossWeights), 4);
}
const float* ZGradWeight(const NodeContext& ctx) {
  return At(ctx.f32(pd::kDLossWeights), 5);
}

// Choices and scores as the balancing losses read them.
struct Inputs {
  const int32_t* index;
  const float* scores;
};

Inputs PrepareInputs(const NodeContext& ctx, device::Stream& stream) {
  const model::Shape& s = *ctx.shape;
  Inputs inputs = {
      ctx.i32(s.plain_choices() ? pd::kPlainIndex : pd::kTopKIndex),
      ctx.f32(pd::kScores)};
  if (!s.own_loss_scores()) return inputs;
  ops::LossInputsArgs own;
  own.tokens = s.tokens;
  own.num_experts = s.experts;
  own.topk = s.top_k;
  own.normalize = s.sigmoid_scores;
  own.valid = ctx.i32(pd::kValid);
  if (s.padding_mask) {
    own.index = inputs.index;
    own.out_index = ctx.i32(pd::kPlainIndex);
    inputs.index = own.out_index;
  }
  own.scores = ctx.f32(pd::kScores);
  own.out_scores = ctx.f32(pd::kLossScores);
  ops::LossInputs(own, stream);
  inputs.scores = own.out_scores;
  return inputs;
}

}  // namespace

double BalanceFactor(const model::Shape& s) {
  return s.experts / (s.top_k * AllTokens(s) * AllTokens(s));
}

void RouterLossForward(const NodeContext& ctx, device::Stream& stream) {
  const model::Shape& s = *ctx.shape;
  if (s.router_loss.z > 0) {
    ops::ZLoss({s.tokens, s.experts, ZFactor(s), ctx.f32(pd::kLogits),
                ctx.f32(pd::kRouterLse), ctx.f64(pd::kZLoss),
                At(ctx.f32(pd::kLossWeights), 3), ctx.i32(pd::kValid)},
               stream);
  }
  if (!s.router_loss.balance()) return;
  const Inputs inputs = PrepareInputs(ctx, stream);
  if (s.router_loss.sequence_aux > 0) {
    ops::GroupBalanceLoss(
        {s.microbatch, s.sequence, s.experts, s.top_k, SequenceFactor(s),
         inputs.scores, inputs.index, ctx.i32(pd::kSequenceCounts),
         ctx.f64(pd::kSequenceAux), At(ctx.f32(pd::kLossWeights), 2)},
        stream);
  }
  if (!s.router_loss.need_counts()) return;
  ops::ScoreSums({s.tokens, s.experts, inputs.scores, ctx.f64(pd::kScoreSums)},
                 stream);
  if (!s.own_loss_counts()) return;
  ops::CountChoicesArgs count;
  count.tokens = s.tokens;
  count.topk = s.top_k;
  count.num_experts = s.experts;
  count.index = inputs.index;
  count.counts = ctx.i32(pd::kLossCounts);
  ops::CountChoices(count, stream);
}

const float* RouterScoresGrad(const NodeContext& ctx, device::Stream& stream) {
  const model::Shape& s = *ctx.shape;
  const model::RouterCoefficients& c = s.router_loss;
  float* d_scores = ctx.f32(pd::kDScoresGrad);
  ops::BalanceGradArgs balance;
  balance.tokens = s.tokens;
  balance.num_experts = s.experts;
  balance.d_scores = d_scores;
  balance.weight = BalanceGradWeight(ctx);
  balance.valid = ctx.i32(pd::kDValid);
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
         ctx.i32(pd::kDSequenceCounts), d_scores, c.need_counts(),
         BalanceGradWeight(ctx), ctx.i32(pd::kDValid)},
        stream);
  }
  return d_scores;
}

void AddRouterLogitsGrad(const NodeContext& ctx, device::Stream& stream) {
  const model::Shape& s = *ctx.shape;
  if (s.router_loss.z == 0) return;
  ops::ZGradArgs z;
  z.tokens = s.tokens;
  z.num_experts = s.experts;
  z.factor = GradWeight(s, s.router_loss.z) * ZFactor(s);
  z.lse = ctx.f32(pd::kDRouterLse);
  if (!s.sigmoid_scores) z.scores = ctx.f32(pd::kDScores);
  z.logits = ctx.f32(pd::kDLogits);
  z.d_logits = ctx.f32(pd::kDLogitsGrad);
  z.weight = ZGradWeight(ctx);
  z.valid = ctx.i32(pd::kDValid);
  ops::ZGrad(z, stream);
}

}  // namespace weft::layers

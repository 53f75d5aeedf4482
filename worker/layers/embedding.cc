#include "kernels/ops/embedding/embedding.h"

#include "model/decoder.h"
#include "worker/layers/nodes.h"

namespace weft::layers {

absl::Status EmbeddingForward(const NodeContext& ctx, device::Stream& stream) {
  namespace args = model::embedding;
  ops::EmbeddingForwardArgs lookup;
  lookup.tokens = ctx.shape->tokens;
  lookup.vocab = ctx.shape->vocab;
  lookup.hidden = ctx.shape->hidden;
  lookup.ids = ctx.i32(args::kTokens);
  lookup.table = ctx.params[args::kTable];
  lookup.out = ctx.tensor(args::kY);
  lookup.factor = static_cast<float>(ctx.shape->embedding_multiplier);
  ops::EmbeddingForward(lookup, stream);
  return absl::OkStatus();
}

absl::Status EmbeddingWgrad(const NodeContext& ctx, device::Stream& stream) {
  namespace args = model::embedding;
  ops::EmbeddingBackwardArgs sum;
  sum.tokens = ctx.shape->tokens;
  sum.vocab = ctx.shape->vocab;
  sum.hidden = ctx.shape->hidden;
  sum.ids = ctx.i32(args::kWTokens);
  sum.d_out = ctx.tensor(args::kWDy);
  sum.scratch = ctx.i32(args::kWScratch);
  sum.d_table = ctx.grads[args::kTable].data;
  sum.accumulate = ctx.grads[args::kTable].accumulate;
  sum.untrained_id = ctx.shape->padding_token;
  sum.factor = static_cast<float>(ctx.shape->embedding_multiplier);
  ops::EmbeddingBackward(sum, stream);
  return absl::OkStatus();
}

}  // namespace weft::layers

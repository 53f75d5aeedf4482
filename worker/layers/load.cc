#include "kernels/ops/elementwise/elementwise.h"
#include "model/decoder.h"
#include "worker/layers/nodes.h"

namespace weft::layers {
namespace {

// Copies 4-byte words as they are, whatever they mean.
void CopyWords(const int32_t* from, int32_t* to, int64_t count,
               device::Stream& stream) {
  ops::CopyArgs copy;
  copy.count = count;
  copy.x = reinterpret_cast<const float*>(from);
  copy.out = reinterpret_cast<float*>(to);
  ops::Copy(copy, stream);
}

}  // namespace

absl::Status LoadForward(const NodeContext& ctx, device::Stream& stream) {
  namespace args = model::load;
  const int64_t sequence = ctx.shape->sequence;
  for (int64_t b = 0; b < ctx.shape->microbatch; ++b) {
    const int32_t* sample = ctx.batch + b * ctx.shape->sample_words();
    const int32_t* labels = sample + (ctx.shape->loss_mask ? sequence + 1 : 1);
    const int64_t at = b * sequence;
    CopyWords(sample, ctx.i32(args::kTokens) + at, sequence, stream);
    CopyWords(labels, ctx.i32(args::kLabels) + at, sequence, stream);
    if (!ctx.shape->padding_mask) continue;
    const int32_t* valid = sample + ctx.shape->sample_words() - sequence;
    CopyWords(valid, ctx.i32(args::kValid) + at, sequence, stream);
  }
  if (!ctx.shape->replays_routing) return absl::OkStatus();
  const int64_t choices = ctx.shape->tokens * ctx.shape->top_k;
  for (int i = 0; i < ctx.shape->routers(); ++i) {
    CopyWords(ctx.routing + i * choices, ctx.i32(args::kReplayIndex + i),
              choices, stream);
  }
  return absl::OkStatus();
}

}  // namespace weft::layers

#include <algorithm>

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

// The words of a sequence from the k-th on, and then those of `tail`.
void CopyFrom(const int32_t* words, const int32_t* tail, int64_t k,
              int64_t sequence, int32_t* to, device::Stream& stream) {
  const int64_t inside = std::max<int64_t>(sequence - k, 0);
  CopyWords(words + k, to, inside, stream);
  CopyWords(tail, to + inside, sequence - inside, stream);
}

}  // namespace

absl::Status LoadForward(const NodeContext& ctx, device::Stream& stream) {
  namespace args = model::load;
  const model::Shape& s = *ctx.shape;
  const int depths = s.mtp_depths();
  for (int64_t b = 0; b < s.microbatch; ++b) {
    const int32_t* sample = ctx.batch + b * s.sample_words();
    const int32_t* labels = s.labels_of(sample);
    const int32_t* no_token = sample + s.tail_at();
    const int32_t* no_label = no_token + depths;
    const int64_t at = b * s.sequence;
    for (int k = 0; k <= depths; ++k) {
      const int arg = k == 0 ? args::kTokens : args::kDepths + 2 * (k - 1);
      CopyFrom(sample, no_token, k, s.sequence, ctx.i32(arg) + at, stream);
      CopyFrom(labels, no_label, k, s.sequence, ctx.i32(arg + 1) + at, stream);
    }
    if (!s.padding_mask) continue;
    const int32_t* valid = sample + s.sample_words() - s.sequence;
    CopyWords(valid, ctx.i32(args::kValid) + at, s.sequence, stream);
  }
  if (!s.replays_routing) return absl::OkStatus();
  const int64_t choices = s.tokens * s.top_k;
  for (int i = 0; i < s.routers(); ++i) {
    CopyWords(ctx.routing + i * choices,
              ctx.i32(args::kDepths + 2 * depths + i), choices, stream);
  }
  return absl::OkStatus();
}

}  // namespace weft::layers

#include "schedule/flops.h"

#include <vector>

#include "absl/strings/str_format.h"

namespace weft::schedule {

TokenFlops TrainingFlopsOf(const model::Shape& s) {
  // Forward, and twice as much backward; two for a multiply-add.
  constexpr double kWeight = 6;
  TokenFlops flops;
  const double hidden = s.hidden;
  const double matrices = s.gated_mlp() ? 3 : 2;
  const double width = s.heads * s.head_dim;
  const double ffn = s.top_k * s.expert_ffn + s.shared_ffn;
  std::vector<model::LayerBlocks> layers = s.layers;
  layers.insert(layers.end(), s.mtp_layers.begin(), s.mtp_layers.end());
  for (const model::LayerBlocks& layer : layers) {
    for (model::BlockKind block : layer) {
      switch (block) {
        case model::BlockKind::kAttention:
          flops.projections += kWeight * hidden * (s.qkv_columns() + width);
          // Scores and their product with the values, of half of the keys each.
          flops.scores += kWeight * s.sequence * width;
          break;
        case model::BlockKind::kMamba:
          flops.projections += kWeight * hidden *
                               (s.mamba.projected_columns() + s.mamba.inner());
          flops.states += 2 * kWeight * s.mamba.inner() * s.mamba.state_size;
          break;
        case model::BlockKind::kMla:
          flops.projections += kWeight * s.mla_weights();
          flops.scores += kWeight * s.sequence * s.heads *
                          (s.mla.qk_dim() + s.mla.v_dim) / 2;
          break;
        case model::BlockKind::kMlp:
          flops.feed_forward += kWeight * matrices * hidden * s.ffn;
          break;
        case model::BlockKind::kExperts:
          flops.feed_forward += kWeight * hidden * (matrices * ffn + s.experts);
          break;
      }
    }
  }
  // A depth has a projection from two states to one, and logits of its own.
  flops.projections += kWeight * s.mtp_depths() * 2 * hidden * hidden;
  flops.head = kWeight * (1 + s.mtp_depths()) * hidden * s.vocab;
  return flops;
}

std::string DescribeFlops(const TokenFlops& flops) {
  std::string text = absl::StrFormat(
      "a token takes %.4g FLOP forward and backward: 6 x weights met "
      "(attention %.4g, feed-forward and routers %.4g, head %.4g) + 6 x layers "
      "x sequence x heads x head_dim (causal scores, %.4g)",
      flops.total(), flops.projections, flops.feed_forward, flops.head,
      flops.scores);
  if (flops.states > 0) {
    absl::StrAppendFormat(&text,
                          " + 12 x layers x heads x head_dim x state_size "
                          "(states of Mamba-2, whose projections count with "
                          "those of attention, %.4g)",
                          flops.states);
  }
  return text;
}

}  // namespace weft::schedule

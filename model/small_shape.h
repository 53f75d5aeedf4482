// The shape of a small decoder, for tests of declarations.
#ifndef WEFT_MODEL_SMALL_SHAPE_H_
#define WEFT_MODEL_SMALL_SHAPE_H_

#include <vector>

#include "model/shape.h"

namespace weft::model {

// Transformer layers: for each, whether it has experts.
inline std::vector<LayerBlocks> TransformerLayers(
    const std::vector<bool>& experts) {
  std::vector<LayerBlocks> layers;
  for (bool has_experts : experts) {
    layers.push_back({BlockKind::kAttention,
                      has_experts ? BlockKind::kExperts : BlockKind::kMlp});
  }
  return layers;
}

// One rank; a dense layer between two with experts.
inline Shape SmallShape() {
  Shape shape;
  shape.vocab = 32;
  shape.hidden = 16;
  shape.heads = 4;
  shape.kv_heads = 2;
  shape.head_dim = 4;
  shape.ffn = 24;
  shape.experts = 4;
  shape.top_k = 2;
  shape.expert_ffn = 12;
  shape.layers = TransformerLayers({true, false, true});
  shape.has_groups = true;
  shape.sequence = 10;
  shape.microbatch = 2;
  shape.tokens = 20;
  shape.microbatches = 1;
  return shape;
}

}  // namespace weft::model

#endif  // WEFT_MODEL_SMALL_SHAPE_H_

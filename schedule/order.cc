#include "schedule/order.h"

namespace weft::schedule {

void OrderBuilder::Add(int layer, model::NodeKind kind, model::Phase phase,
                       int microbatch) {
  const auto& nodes = model_.layers[layer].nodes;
  for (int node = 0; node < nodes.size(); ++node) {
    if (nodes[node].kind == kind && nodes[node].Find(phase) != nullptr) {
      order_.push_back({layer, node, phase, microbatch});
    }
  }
}

void OrderBuilder::AddForward(int layer, int microbatch) {
  const auto& nodes = model_.layers[layer].nodes;
  for (int node = 0; node < nodes.size(); ++node) {
    if (nodes[node].Find(model::Phase::kForward) != nullptr) {
      order_.push_back({layer, node, model::Phase::kForward, microbatch});
    }
  }
}

std::vector<NodePhase> ForwardOrder(const model::ModelDecl& model,
                                    int microbatches) {
  OrderBuilder order(model);
  for (int m = 0; m < microbatches; ++m) {
    for (int layer = 0; layer < model.layers.size(); ++layer) {
      order.AddForward(layer, m);
    }
  }
  return order.Take();
}

}  // namespace weft::schedule

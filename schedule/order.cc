#include "schedule/order.h"

#include "absl/strings/str_cat.h"

namespace weft::schedule {

using model::Phase;

OrderBuilder::OrderBuilder(const model::ModelDecl& model) : model_(model) {
  for (int layer = 0; layer < model.layers.size(); ++layer) {
    const auto& nodes = model.layers[layer].nodes;
    for (int node = 0; node < nodes.size(); ++node) {
      const model::PhaseDecl* again = nodes[node].Find(Phase::kRecompute);
      if (again == nullptr) continue;
      for (const model::Arg& arg : again->args) {
        if (arg.access == model::Access::kWrite) {
          recomputed_by_[arg.value] = {layer, node};
        }
      }
    }
  }
}

void OrderBuilder::Add(const NodePhase& at) {
  if (at.phase == Phase::kRecompute &&
      !recomputed_.insert({at.layer, at.node, at.microbatch}).second) {
    return;
  }
  if (at.phase != Phase::kForward && !recomputed_by_.empty()) {
    const auto& args = model_.node(at.layer, at.node).Find(at.phase)->args;
    for (const model::Arg& arg : args) {
      const auto by = recomputed_by_.find(arg.value);
      if (arg.access != model::Access::kRead || by == recomputed_by_.end()) {
        continue;
      }
      const auto [layer, node] = by->second;
      Add({layer, node, Phase::kRecompute, at.microbatch});
    }
  }
  order_.push_back(at);
}

void OrderBuilder::Add(int layer, model::NodeKind kind, model::Phase phase,
                       int microbatch) {
  const auto& nodes = model_.layers[layer].nodes;
  for (int node = 0; node < nodes.size(); ++node) {
    if (nodes[node].kind == kind && nodes[node].Find(phase) != nullptr) {
      Add({layer, node, phase, microbatch});
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

absl::Status WgradsCanWait(const model::ModelDecl& model) {
  for (const model::LayerDecl& layer : model.layers) {
    if (layer.kind != model::LayerKind::kDecoder) continue;
    for (const model::NodeDecl& node : layer.nodes) {
      if (node.wgrad_can_wait || node.Find(model::Phase::kWgrad) == nullptr) {
        continue;
      }
      return absl::InvalidArgumentError(absl::StrCat(
          "schedule.delay_wgrad=true but the wgrad of ", Name(node.kind),
          " in ", layer.name, " cannot wait; leave schedule.delay_wgrad out"));
    }
  }
  return absl::OkStatus();
}

}  // namespace weft::schedule

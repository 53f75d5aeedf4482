#include "schedule/order.h"

namespace weft::schedule {
namespace {

using model::NodeDecl;
using model::Phase;

// Emits the backward of one microbatch, holding delayed wgrads back.
class Backward {
 public:
  Backward(OrderBuilder& order, int microbatch, bool delay)
      : order_(order), microbatch_(microbatch), delay_(delay) {}

  void Run() {
    const auto& layers = order_.model().layers;
    for (int layer = layers.size() - 1; layer >= 0; --layer) RunLayer(layer);
    Flush();
  }

 private:
  void RunLayer(int layer) {
    const auto& nodes = order_.model().layers[layer].nodes;
    bool first = true;
    for (int n = nodes.size() - 1; n >= 0; --n) {
      const NodeDecl& node = nodes[n];
      if (const model::PhaseDecl* dgrad = node.Find(Phase::kDgrad)) {
        order_.Add({layer, n, Phase::kDgrad, microbatch_});
        const bool exchange =
            dgrad->resource == model::Resource::kExpertParallel;
        if (exchange || first) Flush();
        first = false;
      }
      if (node.Find(Phase::kWgrad) == nullptr) continue;
      held_.push_back({layer, n, Phase::kWgrad, microbatch_});
      const bool decoder =
          order_.model().layers[layer].kind == model::LayerKind::kDecoder;
      if (!delay_ || !decoder) Flush();
    }
  }

  void Flush() {
    for (const NodePhase& wgrad : held_) order_.Add(wgrad);
    held_.clear();
  }

  OrderBuilder& order_;
  const int microbatch_;
  const bool delay_;
  std::vector<NodePhase> held_;
};

}  // namespace

std::vector<NodePhase> SequentialOrder(const model::ModelDecl& model,
                                       int microbatches, bool delay_wgrad) {
  OrderBuilder order(model);
  for (int m = 0; m < microbatches; ++m) {
    for (int layer = 0; layer < model.layers.size(); ++layer) {
      order.AddForward(layer, m);
    }
    Backward(order, m, delay_wgrad).Run();
  }
  return order.Take();
}

}  // namespace weft::schedule

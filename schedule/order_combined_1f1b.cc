#include "schedule/order.h"

namespace weft::schedule {
namespace {

using model::NodeKind;
using model::Phase;

// Emits steps in which microbatch `f` goes forward and `b` goes backward;
// either is -1 when absent. Layer 0 is the embedding, the last one the head.
class CombinedStep {
 public:
  CombinedStep(OrderBuilder& order, bool delay, int f, int b)
      : order_(order), delay_(delay), f_(f), b_(b) {}

  void Run() {
    const int head = order_.model().layers.size() - 1;
    const int embedding = 0;
    BackwardOfHeads(NodeKind::kLoss);
    F(embedding, NodeKind::kLoad);
    F(embedding, NodeKind::kLossWeights);
    F(embedding, NodeKind::kEmbedding);
    BackwardOfHeads(NodeKind::kHead);
    const int layers = head - 1;
    for (const LayerPair& pair :
         PairLayers(f_ >= 0 ? layers : 0, b_ >= 0 ? layers : 0)) {
      Pair(pair.forward, pair.backward);
    }
    DelayedWgradBeforeDispatch(1);
    F(head, NodeKind::kHead);
    B(embedding, NodeKind::kEmbedding, Phase::kWgrad);
    F(head, NodeKind::kLoss);
  }

 private:
  // Of the last depth of multi-token prediction first, as in the sequential
  // order: they add to the gradients of the same parameters.
  void BackwardOfHeads(NodeKind kind) {
    const int head = order_.model().layers.size() - 1;
    for (int n = nodes(head).size() - 1; n >= 0; --n) {
      if (nodes(head)[n].kind != kind) continue;
      AddNode(head, n, Phase::kDgrad, b_);
      AddNode(head, n, Phase::kWgrad, b_);
    }
  }

  void Pair(int f, int b) {
    B(b, NodeKind::kCombine, Phase::kDgrad);
    B(b, NodeKind::kDispatch, Phase::kRecompute);
    ForwardBeforeDispatch(f);
    for (NodeKind kind : {NodeKind::kExperts, NodeKind::kMlp}) {
      B(b, kind, Phase::kDgrad);
      if (!delay_) Wgrad(b, kind);
    }
    F(f, NodeKind::kCounts);
    F(f, NodeKind::kDispatch);
    F(f, NodeKind::kBalance);
    SharedExpertBesideDispatch(f, Phase::kForward, f_);
    for (NodeKind kind : {NodeKind::kExperts, NodeKind::kMlp}) {
      if (delay_) Wgrad(b, kind);
    }
    B(b, NodeKind::kDispatch, Phase::kDgrad);
    SharedExpertBesideDispatch(b, Phase::kDgrad, b_);
    if (!delay_) SharedExpertBesideDispatch(b, Phase::kWgrad, b_);
    F(f, NodeKind::kExperts);
    F(f, NodeKind::kMlp);
    F(f, NodeKind::kCombine);
    BackwardBeforeDispatch(b);
    if (b != 1) DelayedWgradBeforeDispatch(b);
  }

  bool IsBefore(int layer, int node) const {
    return model::IsBeforeDispatch(order_.model().layers[layer], node);
  }

  // These do nothing without a layer.
  //
  // One that stands before the dispatch is added with what does.
  void SharedExpertBesideDispatch(int layer, Phase phase, int microbatch) {
    if (layer == LayerPair::kNone) return;
    for (int n = 0; n < nodes(layer).size(); ++n) {
      if (nodes(layer)[n].kind != NodeKind::kSharedExpert) continue;
      if (!IsBefore(layer, n)) AddNode(layer, n, phase, microbatch);
    }
  }
  void ForwardBeforeDispatch(int layer) {
    if (layer == LayerPair::kNone) return;
    for (int n = 0; n < nodes(layer).size(); ++n) {
      if (IsBefore(layer, n)) AddNode(layer, n, Phase::kForward, f_);
    }
  }
  // With the wgrads that are not delayed.
  void BackwardBeforeDispatch(int layer) {
    if (layer == LayerPair::kNone) return;
    for (int n = nodes(layer).size() - 1; n >= 0; --n) {
      if (!IsBefore(layer, n)) continue;
      AddNode(layer, n, Phase::kDgrad, b_);
      if (!delay_) AddNode(layer, n, Phase::kWgrad, b_);
    }
  }
  void DelayedWgradBeforeDispatch(int layer) {
    if (!delay_ || layer == LayerPair::kNone) return;
    for (int n = nodes(layer).size() - 1; n >= 0; --n) {
      const bool waits_here =
          IsBefore(layer, n) || nodes(layer)[n].kind == NodeKind::kSharedExpert;
      if (!waits_here) continue;
      AddNode(layer, n, Phase::kWgrad, b_);
    }
  }

  const std::vector<model::NodeDecl>& nodes(int layer) const {
    return order_.model().layers[layer].nodes;
  }
  // Nothing without a microbatch, or when the node has no such phase.
  void AddNode(int layer, int node, Phase phase, int microbatch) {
    if (microbatch < 0 || nodes(layer)[node].Find(phase) == nullptr) return;
    order_.Add({layer, node, phase, microbatch});
  }

  void F(int layer, NodeKind kind) {
    if (f_ < 0 || layer == LayerPair::kNone) return;
    order_.Add(layer, kind, Phase::kForward, f_);
  }
  void B(int layer, NodeKind kind, Phase phase) {
    if (b_ < 0 || layer == LayerPair::kNone) return;
    order_.Add(layer, kind, phase, b_);
  }
  void Wgrad(int layer, NodeKind kind) { B(layer, kind, Phase::kWgrad); }

  OrderBuilder& order_;
  const bool delay_;
  const int f_;
  const int b_;
};

}  // namespace

std::vector<LayerPair> PairLayers(int forward, int backward) {
  std::vector<LayerPair> pairs;
  int f = 1;
  int b = backward;
  while (f <= forward && b >= 1) pairs.push_back({f++, b--});
  while (b >= 1) pairs.push_back({LayerPair::kNone, b--});
  while (f <= forward) pairs.push_back({f++, LayerPair::kNone});
  return pairs;
}

std::vector<NodePhase> Combined1F1BOrder(const model::ModelDecl& model,
                                         int microbatches, bool delay_wgrad) {
  OrderBuilder order(model);
  for (int i = 0; i <= microbatches; ++i) {
    const int f = i < microbatches ? i : -1;
    CombinedStep(order, delay_wgrad, f, i - 1).Run();
  }
  return order.Take();
}

}  // namespace weft::schedule

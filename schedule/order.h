// The order of node phases inside a step: the first decision of the compiler.
#ifndef WEFT_SCHEDULE_ORDER_H_
#define WEFT_SCHEDULE_ORDER_H_

#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "model/declaration.h"

namespace weft::schedule {

// One phase of one node for one microbatch.
struct NodePhase {
  int layer = 0;
  int node = 0;
  model::Phase phase = model::Phase::kForward;
  int microbatch = 0;
};

// Appends node phases, asking the declaration which exist. A recompute phase
// stands right before the first phase that reads what it writes, unless it was
// added before.
class OrderBuilder {
 public:
  explicit OrderBuilder(const model::ModelDecl& model);

  // The phase of the layer's nodes of this kind, in forward order; nothing when
  // the layer has no such node or the node no such phase.
  void Add(int layer, model::NodeKind kind, model::Phase phase, int microbatch);
  // A phase of one node, which must have it.
  void Add(const NodePhase& node);
  // All forward phases of a layer.
  void AddForward(int layer, int microbatch);

  const model::ModelDecl& model() const { return model_; }
  std::vector<NodePhase> Take() { return std::move(order_); }

 private:
  const model::ModelDecl& model_;
  std::vector<NodePhase> order_;
  // By value: the layer and the node whose recompute writes it.
  std::map<int, std::pair<int, int>> recomputed_by_;
  // Layer, node and microbatch of those that were added.
  std::set<std::tuple<int, int, int>> recomputed_;
};

// Forward, then backward, microbatch after microbatch.
//
// wgrad at once: right after the dgrad of its node. Delayed, which requires
// WgradsCanWait: right after the
// launch of the next exchange, which it hides, and at the latest with the next
// layer's first dgrad.
std::vector<NodePhase> SequentialOrder(const model::ModelDecl& model,
                                       int microbatches, bool delay_wgrad);

// Decoder layers, from 1 on, that run together; kNone: the other one alone.
struct LayerPair {
  static constexpr int kNone = -1;

  int forward = kNone;
  int backward = kNone;
};
// The pairs of a step in order: layer i of `forward` layers with the i-th last
// of `backward` ones. Of what is left over, backward goes first.
std::vector<LayerPair> PairLayers(int forward, int backward);

// Whether each decoder layer's wgrads may run later than right after their
// dgrad. INVALID_ARGUMENT, naming the first layer and node that may not.
absl::Status WgradsCanWait(const model::ModelDecl& model);

// Forward of microbatch i+1 paired with backward of microbatch i: the first
// forward alone, then M-1 pairs, then the last backward alone. In a pair, layer
// i of the forward meets layer n-1-i of the backward, in this launch order
// (Megatron-LM's; layers have only the rows they have; "pre" are the nodes
// before the dispatch, mixers, pre_dispatch and a shared expert that stands
// there, in backward the last first; "shared" is one that is overlapped; a
// dense feed-forward runs where experts do):
//
//   backward             forward
//   combine.dgrad
//                        pre
//   experts.dgrad
//                        counts, dispatch, balance
//                        shared
//   experts.wgrad        (delayed)
//   dispatch.dgrad
//   shared.dgrad
//                        experts
//                        combine
//   pre.dgrad
//   pre.wgrad, shared.wgrad    (delayed: of the last layer, after all pairs)
std::vector<NodePhase> Combined1F1BOrder(const model::ModelDecl& model,
                                         int microbatches, bool delay_wgrad);

// The forward of every microbatch, for validation.
std::vector<NodePhase> ForwardOrder(const model::ModelDecl& model,
                                    int microbatches);

}  // namespace weft::schedule

#endif  // WEFT_SCHEDULE_ORDER_H_

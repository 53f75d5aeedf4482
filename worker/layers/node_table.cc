#include "worker/layers/node_table.h"

#include "worker/layers/nodes.h"

namespace weft::layers {
namespace {

using model::NodeKind;
using model::Phase;

enum class Layers : uint8_t { kAny, kMoe, kDense };

struct Entry {
  NodeKind kind;
  Phase phase;
  Layers layers;
  NodeFn fn;
  const char* name;
};

constexpr Entry kTable[] = {
    {NodeKind::kLoad, Phase::kForward, Layers::kAny, LoadForward,
     "load.forward"},
    {NodeKind::kLossWeights, Phase::kForward, Layers::kAny, LossWeightsForward,
     "loss_weights.forward"},
    {NodeKind::kEmbedding, Phase::kForward, Layers::kAny, EmbeddingForward,
     "embedding.forward"},
    {NodeKind::kEmbedding, Phase::kWgrad, Layers::kAny, EmbeddingWgrad,
     "embedding.wgrad"},
    {NodeKind::kPreDispatch, Phase::kForward, Layers::kMoe,
     MoePreDispatchForward, "pre_dispatch.forward"},
    {NodeKind::kPreDispatch, Phase::kDgrad, Layers::kMoe, MoePreDispatchDgrad,
     "pre_dispatch.dgrad"},
    {NodeKind::kPreDispatch, Phase::kWgrad, Layers::kMoe, MoePreDispatchWgrad,
     "pre_dispatch.wgrad"},
    {NodeKind::kPreDispatch, Phase::kForward, Layers::kDense,
     DensePreDispatchForward, "pre_dispatch.forward"},
    {NodeKind::kPreDispatch, Phase::kDgrad, Layers::kDense,
     DensePreDispatchDgrad, "pre_dispatch.dgrad"},
    {NodeKind::kPreDispatch, Phase::kWgrad, Layers::kDense,
     DensePreDispatchWgrad, "pre_dispatch.wgrad"},
    {NodeKind::kCounts, Phase::kForward, Layers::kAny, CountsForward,
     "counts.forward"},
    {NodeKind::kBalance, Phase::kForward, Layers::kAny, BalanceForward,
     "balance.forward"},
    {NodeKind::kDispatch, Phase::kForward, Layers::kAny, DispatchForward,
     "dispatch.forward"},
    {NodeKind::kDispatch, Phase::kDgrad, Layers::kAny, DispatchDgrad,
     "dispatch.dgrad"},
    {NodeKind::kExperts, Phase::kForward, Layers::kAny, ExpertsForward,
     "experts.forward"},
    {NodeKind::kExperts, Phase::kDgrad, Layers::kAny, ExpertsDgrad,
     "experts.dgrad"},
    {NodeKind::kExperts, Phase::kWgrad, Layers::kAny, ExpertsWgrad,
     "experts.wgrad"},
    {NodeKind::kCombine, Phase::kForward, Layers::kAny, CombineForward,
     "combine.forward"},
    {NodeKind::kCombine, Phase::kDgrad, Layers::kAny, CombineDgrad,
     "combine.dgrad"},
    {NodeKind::kMlp, Phase::kForward, Layers::kAny, MlpForward, "mlp.forward"},
    {NodeKind::kMlp, Phase::kDgrad, Layers::kAny, MlpDgrad, "mlp.dgrad"},
    {NodeKind::kMlp, Phase::kWgrad, Layers::kAny, MlpWgrad, "mlp.wgrad"},
    {NodeKind::kHead, Phase::kForward, Layers::kAny, HeadForward,
     "head.forward"},
    {NodeKind::kHead, Phase::kDgrad, Layers::kAny, HeadDgrad, "head.dgrad"},
    {NodeKind::kHead, Phase::kWgrad, Layers::kAny, HeadWgrad, "head.wgrad"},
    {NodeKind::kLoss, Phase::kForward, Layers::kAny, LossForward,
     "loss.forward"},
    {NodeKind::kLoss, Phase::kDgrad, Layers::kAny, LossDgrad, "loss.dgrad"},
};

}  // namespace

NodeFn FindNode(NodeKind kind, Phase phase, bool moe) {
  const Layers wanted = moe ? Layers::kMoe : Layers::kDense;
  for (const Entry& entry : kTable) {
    if (entry.kind == kind && entry.phase == phase &&
        (entry.layers == Layers::kAny || entry.layers == wanted)) {
      return entry.fn;
    }
  }
  return nullptr;
}

const char* NodeName(NodeKind kind, Phase phase) {
  for (const Entry& entry : kTable) {
    if (entry.kind == kind && entry.phase == phase) return entry.name;
  }
  return "?";
}

}  // namespace weft::layers

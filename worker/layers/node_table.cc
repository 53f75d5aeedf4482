#include "worker/layers/node_table.h"

#include "worker/layers/nodes.h"

namespace weft::layers {
namespace {

using model::NodeKind;
using model::Phase;

struct Entry {
  NodeKind kind;
  Phase phase;
  NodeFn fn;
  const char* name;
};

constexpr Entry kTable[] = {
    {NodeKind::kLoad, Phase::kForward, LoadForward, "load.forward"},
    {NodeKind::kLossWeights, Phase::kForward, LossWeightsForward,
     "loss_weights.forward"},
    {NodeKind::kEmbedding, Phase::kForward, EmbeddingForward,
     "embedding.forward"},
    {NodeKind::kEmbedding, Phase::kWgrad, EmbeddingWgrad, "embedding.wgrad"},
    {NodeKind::kMtpInput, Phase::kForward, MtpInputForward,
     "mtp_input.forward"},
    {NodeKind::kMtpInput, Phase::kDgrad, MtpInputDgrad, "mtp_input.dgrad"},
    {NodeKind::kMtpInput, Phase::kWgrad, MtpInputWgrad, "mtp_input.wgrad"},
    {NodeKind::kAttention, Phase::kForward, AttentionForward,
     "attention.forward"},
    {NodeKind::kAttention, Phase::kRecompute, AttentionForward,
     "attention.recompute"},
    {NodeKind::kAttention, Phase::kDgrad, AttentionDgrad, "attention.dgrad"},
    {NodeKind::kAttention, Phase::kWgrad, AttentionWgrad, "attention.wgrad"},
    {NodeKind::kMamba, Phase::kForward, MambaForward, "mamba.forward"},
    {NodeKind::kMamba, Phase::kRecompute, MambaForward, "mamba.recompute"},
    {NodeKind::kMamba, Phase::kDgrad, MambaDgrad, "mamba.dgrad"},
    {NodeKind::kMamba, Phase::kWgrad, MambaWgrad, "mamba.wgrad"},
    {NodeKind::kMla, Phase::kForward, MlaForward, "mla.forward"},
    {NodeKind::kMla, Phase::kRecompute, MlaForward, "mla.recompute"},
    {NodeKind::kMla, Phase::kDgrad, MlaDgrad, "mla.dgrad"},
    {NodeKind::kMla, Phase::kWgrad, MlaWgrad, "mla.wgrad"},
    {NodeKind::kPreDispatch, Phase::kForward, PreDispatchForward,
     "pre_dispatch.forward"},
    {NodeKind::kPreDispatch, Phase::kRecompute, PreDispatchForward,
     "pre_dispatch.recompute"},
    {NodeKind::kPreDispatch, Phase::kDgrad, PreDispatchDgrad,
     "pre_dispatch.dgrad"},
    {NodeKind::kSharedExpert, Phase::kForward, SharedExpertForward,
     "shared_expert.forward"},
    {NodeKind::kSharedExpert, Phase::kRecompute, SharedExpertForward,
     "shared_expert.recompute"},
    {NodeKind::kSharedExpert, Phase::kDgrad, SharedExpertDgrad,
     "shared_expert.dgrad"},
    {NodeKind::kSharedExpert, Phase::kWgrad, SharedExpertWgrad,
     "shared_expert.wgrad"},
    {NodeKind::kCounts, Phase::kForward, CountsForward, "counts.forward"},
    {NodeKind::kBalance, Phase::kForward, BalanceForward, "balance.forward"},
    {NodeKind::kDispatch, Phase::kForward, DispatchForward, "dispatch.forward"},
    {NodeKind::kDispatch, Phase::kRecompute, DispatchForward,
     "dispatch.recompute"},
    {NodeKind::kDispatch, Phase::kDgrad, DispatchDgrad, "dispatch.dgrad"},
    {NodeKind::kExperts, Phase::kForward, ExpertsForward, "experts.forward"},
    {NodeKind::kExperts, Phase::kRecompute, ExpertsForward,
     "experts.recompute"},
    {NodeKind::kExperts, Phase::kDgrad, ExpertsDgrad, "experts.dgrad"},
    {NodeKind::kExperts, Phase::kWgrad, ExpertsWgrad, "experts.wgrad"},
    {NodeKind::kCombine, Phase::kForward, CombineForward, "combine.forward"},
    {NodeKind::kCombine, Phase::kDgrad, CombineDgrad, "combine.dgrad"},
    {NodeKind::kMlp, Phase::kForward, MlpForward, "mlp.forward"},
    {NodeKind::kMlp, Phase::kRecompute, MlpForward, "mlp.recompute"},
    {NodeKind::kMlp, Phase::kDgrad, MlpDgrad, "mlp.dgrad"},
    {NodeKind::kMlp, Phase::kWgrad, MlpWgrad, "mlp.wgrad"},
    {NodeKind::kHead, Phase::kForward, HeadForward, "head.forward"},
    {NodeKind::kHead, Phase::kDgrad, HeadDgrad, "head.dgrad"},
    {NodeKind::kHead, Phase::kWgrad, HeadWgrad, "head.wgrad"},
    {NodeKind::kLoss, Phase::kForward, LossForward, "loss.forward"},
    {NodeKind::kLoss, Phase::kDgrad, LossDgrad, "loss.dgrad"},
};

}  // namespace

NodeFn FindNode(NodeKind kind, Phase phase) {
  for (const Entry& entry : kTable) {
    if (entry.kind == kind && entry.phase == phase) return entry.fn;
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

#include "model/declaration.h"

#include <algorithm>

namespace weft::model {

const char* Name(NodeKind kind) {
  switch (kind) {
    case NodeKind::kLoad:
      return "load";
    case NodeKind::kLossWeights:
      return "loss_weights";
    case NodeKind::kEmbedding:
      return "embedding";
    case NodeKind::kMtpInput:
      return "mtp_input";
    case NodeKind::kAttention:
      return "attention";
    case NodeKind::kMamba:
      return "mamba";
    case NodeKind::kMla:
      return "mla";
    case NodeKind::kPreDispatch:
      return "pre_dispatch";
    case NodeKind::kSharedExpert:
      return "shared_expert";
    case NodeKind::kCounts:
      return "counts";
    case NodeKind::kDispatch:
      return "dispatch";
    case NodeKind::kExperts:
      return "experts";
    case NodeKind::kCombine:
      return "combine";
    case NodeKind::kBalance:
      return "balance";
    case NodeKind::kMlp:
      return "mlp";
    case NodeKind::kHead:
      return "head";
    case NodeKind::kLoss:
      return "loss";
  }
  return "?";
}

bool IsBeforeDispatch(const LayerDecl& layer, int node) {
  const auto begin = layer.nodes.begin();
  switch (layer.nodes[node].kind) {
    case NodeKind::kMtpInput:
    case NodeKind::kAttention:
    case NodeKind::kMamba:
    case NodeKind::kMla:
    case NodeKind::kPreDispatch:
      return true;
    case NodeKind::kSharedExpert:
      return std::none_of(begin, begin + node, [](const NodeDecl& before) {
        return before.kind == NodeKind::kDispatch;
      });
    default:
      return false;
  }
}

const char* Name(Phase phase) {
  switch (phase) {
    case Phase::kForward:
      return "forward";
    case Phase::kDgrad:
      return "dgrad";
    case Phase::kWgrad:
      return "wgrad";
    case Phase::kRecompute:
      return "recompute";
  }
  return "?";
}

const char* Name(RouterLoss loss) {
  switch (loss) {
    case RouterLoss::kAux:
      return "aux";
    case RouterLoss::kSequenceAux:
      return "sequence_aux";
    case RouterLoss::kGlobalAux:
      return "global_aux";
    case RouterLoss::kZ:
      return "z";
  }
  return "?";
}

int64_t ParamDecl::local_elements() const {
  int64_t elements = 1;
  for (int64_t size : local_shape) elements *= size;
  return elements;
}

const PhaseDecl* NodeDecl::Find(Phase phase) const {
  for (const PhaseDecl& decl : phases) {
    if (decl.phase == phase) return &decl;
  }
  return nullptr;
}

ParamDecl ExpertBiasDecl::AsParameter() const {
  ParamDecl param;
  param.name = name;
  param.layer = layer;
  param.shape = {experts};
  param.local_shape = param.shape;
  return param;
}

}  // namespace weft::model

#include "worker/layers/scratch.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/ops/embedding/embedding.h"
#include "model/decoder.h"
#include "worker/layers/attention.h"
#include "worker/layers/mamba.h"
#include "worker/layers/mla.h"

namespace weft::layers {
namespace {

using model::NodeKind;
using model::Phase;

absl::Status CheckArg(const model::ModelDecl& model,
                      const model::PhaseDecl& phase, int arg,
                      int64_t needed_bytes) {
  const int slot = phase.arg_slots[arg];
  if (slot < 0) return absl::OkStatus();  // a step that does not run
  const model::ValueDecl& value = model.values[phase.args[slot].value];
  if (value.max_bytes() >= needed_bytes) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(
      "scratch ", value.name, " is declared with ", value.max_bytes(),
      " bytes, but the op needs ", needed_bytes));
}

absl::Status CheckPhase(const model::Shape& shape,
                        const model::ModelDecl& model, NodeKind kind,
                        const model::PhaseDecl& phase) {
  constexpr int64_t kWord = 4;
  const bool runs_forward =
      phase.phase == Phase::kForward || phase.phase == Phase::kRecompute;
  if (kind == NodeKind::kAttention && runs_forward) {
    return CheckArg(model, phase, model::attention::kScratch,
                    AttentionForwardScratch(shape) * kWord);
  }
  if (kind == NodeKind::kAttention && phase.phase == Phase::kDgrad) {
    return CheckArg(model, phase, model::attention::kDAttnScratch,
                    AttentionDgradScratch(shape) * kWord);
  }
  if (kind == NodeKind::kMamba && runs_forward) {
    return CheckArg(model, phase, model::mamba::kScratch,
                    MambaForwardScratch(shape) * kWord);
  }
  if (kind == NodeKind::kMamba && phase.phase == Phase::kDgrad) {
    return CheckArg(model, phase, model::mamba::kDScratch,
                    MambaDgradScratch(shape) * kWord);
  }
  if (kind == NodeKind::kMla && runs_forward) {
    return CheckArg(model, phase, model::mla::kAttnScratch,
                    MlaForwardScratch(shape) * kWord);
  }
  if (kind == NodeKind::kMla && phase.phase == Phase::kDgrad) {
    return CheckArg(model, phase, model::mla::kDAttnScratch,
                    MlaDgradScratch(shape) * kWord);
  }
  if (kind == NodeKind::kMtpInput && phase.phase == Phase::kWgrad) {
    return CheckArg(
        model, phase, model::mtp_input::kWScratch,
        ops::EmbeddingBackwardScratchElements(shape.tokens, shape.vocab) *
            kWord);
  }
  if (kind == NodeKind::kEmbedding && phase.phase == Phase::kWgrad) {
    return CheckArg(
        model, phase, model::embedding::kWScratch,
        ops::EmbeddingBackwardScratchElements(shape.tokens, shape.vocab) *
            kWord);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckScratch(const model::Shape& shape,
                          const model::ModelDecl& model) {
  for (const model::LayerDecl& layer : model.layers) {
    for (const model::NodeDecl& node : layer.nodes) {
      for (const model::PhaseDecl& phase : node.phases) {
        RETURN_IF_ERROR(CheckPhase(shape, model, node.kind, phase));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace weft::layers

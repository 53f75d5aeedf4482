#include "model/frozen.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace weft::model {
namespace {

void DropGradients(const std::vector<ParamDecl>& params, PhaseDecl& phase) {
  std::vector<int> kept;
  std::vector<int> moved;  // by index before: the index now, or -1
  for (int param : phase.grads_written) {
    const bool frozen = params[param].frozen;
    moved.push_back(frozen ? -1 : static_cast<int>(kept.size()));
    if (!frozen) kept.push_back(param);
  }
  for (int& slot : phase.grad_slots) {
    if (slot >= 0) slot = moved[slot];
  }
  phase.grads_written = std::move(kept);
}

template <typename Fn>
void ForEachPhase(ModelDecl& model, Fn fn) {
  for (LayerDecl& layer : model.layers) {
    for (NodeDecl& node : layer.nodes) {
      for (PhaseDecl& phase : node.phases) fn(phase);
    }
  }
}

// By value: whether something that is needed reads it.
std::vector<bool> NeededValues(ModelDecl& model) {
  std::vector<const PhaseDecl*> writer(model.values.size());
  std::vector<const PhaseDecl*> needed;  // not looked at yet
  ForEachPhase(model, [&](PhaseDecl& phase) {
    for (const Arg& arg : phase.args) {
      if (arg.access == Access::kWrite) writer[arg.value] = &phase;
    }
    const bool by_itself =
        phase.phase == Phase::kForward || !phase.grads_written.empty();
    if (by_itself) needed.push_back(&phase);
  });
  std::vector<bool> is_read(model.values.size());
  while (!needed.empty()) {
    const PhaseDecl& phase = *needed.back();
    needed.pop_back();
    for (const Arg& arg : phase.args) {
      if (arg.access != Access::kRead || is_read[arg.value]) continue;
      is_read[arg.value] = true;
      if (writer[arg.value] != nullptr) needed.push_back(writer[arg.value]);
    }
  }
  return is_read;
}

bool IsNeeded(const PhaseDecl& phase, const std::vector<bool>& is_read) {
  if (phase.phase == Phase::kForward || !phase.grads_written.empty()) {
    return true;
  }
  return std::any_of(phase.args.begin(), phase.args.end(), [&](const Arg& arg) {
    return arg.access == Access::kWrite && is_read[arg.value];
  });
}

}  // namespace

void DropFrozenGradients(ModelDecl& model) {
  const bool any = std::any_of(model.params.begin(), model.params.end(),
                               [](const ParamDecl& p) { return p.frozen; });
  if (!any) return;
  ForEachPhase(model,
               [&](PhaseDecl& phase) { DropGradients(model.params, phase); });
  const std::vector<bool> is_read = NeededValues(model);
  for (LayerDecl& layer : model.layers) {
    for (NodeDecl& node : layer.nodes) {
      auto needless = [&](const PhaseDecl& phase) {
        return !IsNeeded(phase, is_read);
      };
      node.phases.erase(
          std::remove_if(node.phases.begin(), node.phases.end(), needless),
          node.phases.end());
    }
  }
}

}  // namespace weft::model

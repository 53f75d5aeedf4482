#include "model/recompute.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "model/declaration_builder.h"

namespace weft::model {
namespace {

class Recomputer {
 public:
  Recomputer(const Recompute& what, ModelDecl& model)
      : what_(what),
        model_(model),
        is_wanted_(model.values.size()),
        is_shared_(model.values.size()),
        again_(model.values.size(), kAbsent) {
    FindReaders();
  }

  void Layer(LayerDecl& layer) {
    std::vector<NodeDecl>& nodes = layer.nodes;
    std::vector<uint32_t> steps(nodes.size());
    // What a step reads may have to be computed again by one before it.
    for (int n = nodes.size() - 1; n >= 0; --n) steps[n] = StepsOf(nodes[n]);
    for (size_t n = 0; n < nodes.size(); ++n) {
      for (PhaseDecl& phase : nodes[n].phases) {
        if (phase.phase != Phase::kForward) ReadAgain(phase);
      }
      if (steps[n] != 0) {
        nodes[n].phases.push_back(PhaseOf(nodes[n], steps[n]));
      }
    }
  }

 private:
  void FindReaders() {
    for (size_t layer = 0; layer < model_.layers.size(); ++layer) {
      for (const NodeDecl& node : model_.layers[layer].nodes) {
        for (const PhaseDecl& phase : node.phases) {
          for (const Arg& arg : phase.args) {
            if (arg.access != Access::kRead) continue;
            if (phase.phase != Phase::kForward) is_wanted_[arg.value] = true;
            if (model_.values[arg.value].layer != static_cast<int>(layer)) {
              is_shared_[arg.value] = true;
            }
          }
        }
      }
    }
  }

  // The value of one of a phase's args; kAbsent when it is left out.
  static int ValueOf(const PhaseDecl& phase, int number) {
    if (number >= static_cast<int>(phase.arg_slots.size())) return kAbsent;
    const int slot = phase.arg_slots[number];
    return slot < 0 ? kAbsent : phase.args[slot].value;
  }

  // The steps of a node that run again, as bits. Gives what they write a value
  // of its own.
  uint32_t StepsOf(const NodeDecl& node) {
    const PhaseDecl& forward = *node.Find(Phase::kForward);
    uint32_t steps = 0;
    for (int i = node.steps.size() - 1; i >= 0; --i) {
      const StepDecl& step = node.steps[i];
      const bool is_wanted =
          std::any_of(step.writes.begin(), step.writes.end(), [&](int number) {
            const int value = ValueOf(forward, number);
            return value >= 0 && is_wanted_[value] && !is_shared_[value];
          });
      if (!is_wanted || !what_.Covers(step.part)) continue;
      steps |= 1u << i;
      for (int number : step.writes) {
        const int value = ValueOf(forward, number);
        if (value >= 0) again_[value] = Copy(value);
      }
      for (int number : step.reads) {
        const int value = ValueOf(forward, number);
        if (value >= 0) is_wanted_[value] = true;
      }
    }
    return steps;
  }

  int Copy(int value) {
    ValueDecl copy = model_.values[value];
    copy.name += ".recomputed";
    model_.values.push_back(std::move(copy));
    return model_.values.size() - 1;
  }

  // The value that backward finds in place of one of forward's.
  int Now(int value) const {
    return again_[value] == kAbsent ? value : again_[value];
  }

  void ReadAgain(PhaseDecl& phase) const {
    for (Arg& arg : phase.args) {
      if (arg.access == Access::kRead) arg.value = Now(arg.value);
    }
  }

  PhaseDecl PhaseOf(const NodeDecl& node, uint32_t steps) {
    const PhaseDecl& forward = *node.Find(Phase::kForward);
    std::vector<Arg> args(forward.arg_slots.size(), R(kAbsent));
    std::vector<int> params(forward.param_slots.size(), kAbsent);
    StepDecl sum;
    for (size_t i = 0; i < node.steps.size(); ++i) {
      if ((steps >> i & 1) == 0) continue;
      const StepDecl& step = node.steps[i];
      AddArgs(forward, step, args);
      for (int number : step.params) {
        const int slot = forward.param_slots[number];
        if (slot >= 0) params[number] = forward.params_read[slot];
      }
      sum.flops += step.flops;
      sum.attention_flops += step.attention_flops;
      sum.bytes_to_peer += step.bytes_to_peer;
    }
    PhaseDecl phase = Compute(Phase::kRecompute, std::move(args),
                              std::move(params), {}, sum.flops);
    phase.attention_flops = sum.attention_flops;
    phase.bytes_to_peer = sum.bytes_to_peer;
    phase.resource = forward.resource;
    phase.steps = steps;
    return phase;
  }

  void AddArgs(const PhaseDecl& forward, const StepDecl& step,
               std::vector<Arg>& args) {
    for (int number : step.reads) {
      const int value = ValueOf(forward, number);
      // Unless a step before it writes it.
      if (value >= 0 && args[number].value == kAbsent) {
        args[number] = R(Now(value));
      }
    }
    for (int number : step.writes) {
      const int value = ValueOf(forward, number);
      if (value >= 0) args[number] = W(again_[value]);
    }
    for (int number : step.scratch) {
      const int value = ValueOf(forward, number);
      if (value >= 0) args[number] = S(Copy(value));
    }
  }

  const Recompute& what_;
  ModelDecl& model_;
  // By value of the model without recompute: backward reads it; another layer
  // does; what is computed again of it, or kAbsent.
  std::vector<bool> is_wanted_;
  std::vector<bool> is_shared_;
  std::vector<int> again_;
};

}  // namespace

void AddRecompute(const Recompute& what, ModelDecl& model) {
  if (!what.full && what.parts.empty()) return;
  Recomputer recomputer(what, model);
  for (LayerDecl& layer : model.layers) {
    if (layer.kind == LayerKind::kDecoder) recomputer.Layer(layer);
  }
}

}  // namespace weft::model

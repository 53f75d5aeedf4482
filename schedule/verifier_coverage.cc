#include <set>
#include <tuple>

#include "base/status_macros.h"
#include "schedule/verifier_proofs.h"

namespace weft::schedule {
namespace {

// Layer, node, phase and microbatch.
using Instance = std::tuple<int, int, model::Phase, int>;

Instance InstanceOf(const Op& op) {
  return {op.layer, op.node, op.phase, op.microbatch};
}

// Whether a program runs the phases of nodes that are `phase`.
bool Runs(const Program& program, model::Phase phase) {
  return program.kind != ProgramKind::kEval || phase == model::Phase::kForward;
}

// An op that stands where `missing` should: of its layer and microbatch, or
// else the last one.
int Beside(const Program& program, const Instance& missing) {
  for (int id = 0; id < program.ops.size(); ++id) {
    const Op& op = program.ops[id];
    if (op.layer == std::get<0>(missing) &&
        op.microbatch == std::get<3>(missing)) {
      return id;
    }
  }
  return static_cast<int>(program.ops.size()) - 1;
}

absl::Status Missing(const Subject& s, const char* what,
                     const Instance& missing) {
  const auto& [layer, node, phase, microbatch] = missing;
  return Broken("coverage", Beside(s.program, missing), "has beside it no ",
                what, " of ", Name(phase), " of ", s.model.layers[layer].name,
                ".", Name(s.model.node(layer, node).kind), " of microbatch ",
                microbatch);
}

absl::Status AllRun(const Subject& s, const std::set<Instance>& phases,
                    const std::set<Instance>& host_waits) {
  for (int layer = 0; layer < s.model.layers.size(); ++layer) {
    for (int n = 0; n < s.model.layers[layer].nodes.size(); ++n) {
      const model::NodeDecl& node = s.model.node(layer, n);
      for (int m = 0; m < s.program.microbatches; ++m) {
        for (const model::PhaseDecl& phase : node.phases) {
          const Instance wanted = {layer, n, phase.phase, m};
          if (Runs(s.program, phase.phase) && phases.count(wanted) == 0) {
            return Missing(s, "op", wanted);
          }
        }
        const Instance awaited = {layer, n, model::Phase::kForward, m};
        if (node.host_wait_after && host_waits.count(awaited) == 0) {
          return Missing(s, "host wait", awaited);
        }
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ProveCoverage(const Subject& s) {
  if (s.program.ops.empty()) return BrokenPlan("coverage", "there are no ops");
  std::set<Instance> phases;
  std::set<Instance> host_waits;
  std::set<int> tapped;  // values
  for (int id = 0; id < s.program.ops.size(); ++id) {
    const Op& op = s.program.ops[id];
    if (op.kind == OpKind::kTap && !tapped.insert(op.args[0]).second) {
      return Broken("coverage", id, "taps value ", op.args[0],
                    " a second time");
    }
    const bool waits = op.kind == OpKind::kHostWait;
    if (op.kind != OpKind::kNode && !waits) continue;
    if (!Runs(s.program, op.phase)) {
      return Broken("coverage", id, "runs ", Name(op.phase),
                    " in a program of forwards");
    }
    if (!(waits ? host_waits : phases).insert(InstanceOf(op)).second) {
      return Broken("coverage", id, waits ? "waits for" : "runs",
                    " a node phase a second time");
    }
    if (waits && !s.model.node(op.layer, op.node).host_wait_after) {
      return Broken("coverage", id, "waits for what nobody asks for");
    }
  }
  return AllRun(s, phases, host_waits);
}

}  // namespace weft::schedule

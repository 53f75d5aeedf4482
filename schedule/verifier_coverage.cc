#include <set>
#include <tuple>

#include "schedule/verifier_proofs.h"

namespace weft::schedule {
namespace {

// Whether a program runs the phases of nodes that are `phase`.
bool Runs(const Program& program, model::Phase phase) {
  return program.kind == ProgramKind::kTrain || phase == model::Phase::kForward;
}

}  // namespace

absl::Status ProveCoverage(const Subject& s) {
  std::set<std::tuple<int, int, int, int>> seen;
  int host_waits = 0;
  for (int id = 0; id < s.program.ops.size(); ++id) {
    const Op& op = s.program.ops[id];
    if (op.kind == OpKind::kHostWait) ++host_waits;
    if (op.kind != OpKind::kNode) continue;
    if (!Runs(s.program, op.phase)) {
      return Broken("coverage", id, "runs ", Name(op.phase),
                    " in a program of forwards");
    }
    const int phase = static_cast<int>(op.phase);
    if (!seen.insert({op.microbatch, op.layer, op.node, phase}).second) {
      return Broken("coverage", id, "runs a node phase a second time");
    }
  }
  int expected = 0;
  int expected_waits = 0;
  for (const model::LayerDecl& layer : s.model.layers) {
    for (const model::NodeDecl& node : layer.nodes) {
      for (const model::PhaseDecl& phase : node.phases) {
        if (Runs(s.program, phase.phase)) ++expected;
      }
      if (node.host_wait_after) ++expected_waits;
    }
  }
  if (seen.size() != expected * s.program.microbatches ||
      host_waits != expected_waits * s.program.microbatches) {
    return BrokenPlan("coverage", seen.size(), " node phases and ", host_waits,
                      " host waits of ", expected * s.program.microbatches,
                      " and ", expected_waits * s.program.microbatches);
  }
  return absl::OkStatus();
}

}  // namespace weft::schedule

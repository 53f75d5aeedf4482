#include <array>
#include <vector>

#include "schedule/verifier_proofs.h"

namespace weft::schedule {
namespace {

// The joint graph. All ranks run this program, so op `i` of every rank folds
// into one vertex: a collective is one vertex anyway, and folding the others
// can only add cycles, never hide one.
std::vector<std::vector<int>> JointGraph(const Program& program) {
  std::vector<std::vector<int>> successors(program.ops.size());
  std::array<int, kNumStreams> last;
  last.fill(-1);
  int launched_after = -1;  // the latest host wait
  for (int id = 0; id < program.ops.size(); ++id) {
    const Op& op = program.ops[id];
    auto edge = [&](int from) {
      if (from >= 0) successors[from].push_back(id);
    };
    edge(launched_after);
    for (int wait : op.waits) edge(wait);
    if (op.kind == OpKind::kHostWait) {
      launched_after = id;
      continue;
    }
    int& previous = last[static_cast<int>(op.stream)];
    edge(previous);
    previous = id;
  }
  return successors;
}

}  // namespace

absl::Status ProveAgreement(const Subject& s) {
  const auto successors = JointGraph(s.program);
  std::vector<int> pending(s.program.ops.size());
  for (const auto& list : successors) {
    for (int to : list) ++pending[to];
  }
  std::vector<int> ready;
  for (int id = 0; id < pending.size(); ++id) {
    if (pending[id] == 0) ready.push_back(id);
  }
  int done = 0;
  while (!ready.empty()) {
    const int id = ready.back();
    ready.pop_back();
    ++done;
    for (int to : successors[id]) {
      if (--pending[to] == 0) ready.push_back(to);
    }
  }
  if (done == pending.size()) return absl::OkStatus();
  for (int id = 0; id < pending.size(); ++id) {
    if (pending[id] > 0) {
      return Broken("agreement", id, "waits, in the end, for itself");
    }
  }
  return absl::OkStatus();
}

}  // namespace weft::schedule

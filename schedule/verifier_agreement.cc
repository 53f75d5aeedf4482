#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "schedule/verifier_proofs.h"

namespace weft::schedule {
namespace {

// The ops of ranks and what runs before what, a collective being one vertex.
class JointGraph {
 public:
  // Adds the next rank.
  void AddRank(const Program& program) {
    const int base = rank_of_.size();
    base_.push_back(base);
    rank_of_.resize(base + program.ops.size(), base_.size() - 1);
    for (int id = 0; id < program.ops.size(); ++id) {
      same_.push_back(base + id);
    }
    programs_.push_back(&program);
  }

  // Makes two ops one vertex: members of a collective.
  void Merge(int rank, int op, int other_rank, int other_op) {
    same_[base_[other_rank] + other_op] = same_[base_[rank] + op];
  }

  // A cycle, as ops of ranks, each before the next; empty when there is none.
  std::vector<std::pair<int, int>> FindCycle() {
    AddEdges();
    std::vector<int> pending(rank_of_.size());
    for (const auto& [from, to] : edges_) ++pending[to];
    const std::vector<int> begin = SortEdges();
    std::vector<int> ready;
    for (int v = 0; v < pending.size(); ++v) {
      if (pending[v] == 0) ready.push_back(v);
    }
    while (!ready.empty()) {
      const int v = ready.back();
      ready.pop_back();
      for (int e = begin[v]; e < begin[v + 1]; ++e) {
        if (--pending[edges_[e].second] == 0) ready.push_back(edges_[e].second);
      }
    }
    return CycleAmong(pending);
  }

 private:
  void AddEdges() {
    for (int rank = 0; rank < programs_.size(); ++rank) {
      EdgesOf(*programs_[rank], base_[rank]);
    }
  }

  void EdgesOf(const Program& program, int base) {
    std::array<int, kNumStreams> last;
    last.fill(-1);
    int launched_after = -1;     // the latest host wait
    int collective_before = -1;  // the latest collective launched
    for (int id = 0; id < program.ops.size(); ++id) {
      const Op& op = program.ops[id];
      auto edge = [&](int from) {
        if (from >= 0) edges_.push_back({same_[base + from], same_[base + id]});
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
      if (!IsCollective(op)) continue;
      edge(collective_before);
      collective_before = id;
    }
  }

  // Where the edges of each vertex begin, once sorted.
  std::vector<int> SortEdges() {
    std::sort(edges_.begin(), edges_.end());
    std::vector<int> begin(rank_of_.size() + 1);
    for (const auto& [from, to] : edges_) ++begin[from + 1];
    for (int v = 0; v < rank_of_.size(); ++v) begin[v + 1] += begin[v];
    return begin;
  }

  // Of the vertices that stay pending each has one of them before it, so the
  // way back meets itself.
  std::vector<std::pair<int, int>> CycleAmong(const std::vector<int>& pending) {
    std::vector<int> ahead(pending.size(), -1);
    int at = -1;
    for (const auto& [from, to] : edges_) {
      if (pending[from] == 0 || pending[to] == 0) continue;
      ahead[to] = from;
      at = to;
    }
    if (at < 0) return {};
    for (size_t i = 0; i < pending.size(); ++i) at = ahead[at];
    std::vector<std::pair<int, int>> cycle;
    for (int v = at; cycle.empty() || v != at; v = ahead[v]) {
      cycle.push_back({rank_of_[v], v - base_[rank_of_[v]]});
    }
    std::reverse(cycle.begin(), cycle.end());
    return cycle;
  }

  std::vector<const Program*> programs_;
  std::vector<int> base_;     // by rank: its first vertex
  std::vector<int> rank_of_;  // by vertex
  std::vector<int> same_;     // by vertex: the one that stands for it
  std::vector<std::pair<int, int>> edges_;
};

absl::Status NoCycle(JointGraph& graph) {
  const std::vector<std::pair<int, int>> cycle = graph.FindCycle();
  if (cycle.empty()) return absl::OkStatus();
  std::string ops;
  for (const auto& [rank, op] : cycle) {
    absl::StrAppend(&ops, ops.empty() ? "" : ", ", "rank ", rank, " op ", op);
  }
  return BrokenPlan("agreement", "op ", cycle.front().second,
                    " waits, in the end, for itself: ", ops);
}

// The communicator of a collective, as the runtime has them: one for every
// stream and axis, and one of the control op.
using Channel = std::tuple<StreamKind, fsdp::Axis, bool>;

Channel ChannelOf(const fsdp::UnitAssignment& units, const Op& op) {
  if (op.kind == OpKind::kNode) {
    const bool ep = op.stream == StreamKind::kEp;
    return {op.stream, ep ? fsdp::Axis::kEp : fsdp::Axis::kDp, false};
  }
  if (op.kind == OpKind::kControl) return {op.stream, fsdp::Axis::kDp, true};
  return {op.stream, units.buckets[op.bucket].axis, false};
}

// A group, by its channel and lowest rank.
using Group = std::pair<Channel, int>;

// The collectives of each member of each group, in the order of its stream.
std::map<Group, std::map<int, std::vector<int>>> CollectivesByGroup(
    absl::Span<const Program* const> by_rank, const fsdp::World& world,
    const fsdp::UnitAssignment& units) {
  std::map<Group, std::map<int, std::vector<int>>> groups;
  for (int rank = 0; rank < by_rank.size(); ++rank) {
    for (int id = 0; id < by_rank[rank]->ops.size(); ++id) {
      const Op& op = by_rank[rank]->ops[id];
      if (!IsCollective(op)) continue;
      const Channel channel = ChannelOf(units, op);
      const std::vector<int> members =
          world.Members(std::get<fsdp::Axis>(channel), rank);
      auto& lists = groups[{channel, members.front()}];
      for (int member : members) lists[member];
      lists[rank].push_back(id);
    }
  }
  return groups;
}

// Whether two ops are the same collective.
bool SameCollective(const Program& a, int a_id, const Program& b, int b_id) {
  const Op& x = a.ops[a_id];
  const Op& y = b.ops[b_id];
  if (std::tie(x.kind, x.stream, x.layer, x.node, x.phase, x.microbatch,
               x.bucket, x.accumulate) !=
          std::tie(y.kind, y.stream, y.layer, y.node, y.phase, y.microbatch,
                   y.bucket, y.accumulate) ||
      x.args.size() != y.args.size()) {
    return false;
  }
  for (int i = 0; i < x.args.size(); ++i) {
    const bool none = x.args[i] < 0;
    if (none != (y.args[i] < 0)) return false;
    if (none) continue;
    if (a.values[x.args[i]].bytes != b.values[y.args[i]].bytes) return false;
  }
  return true;
}

// Makes the k-th collectives of the members of a group one vertex each, when
// they are the same.
absl::Status MergeGroup(absl::Span<const Program* const> by_rank,
                        const std::map<int, std::vector<int>>& lists,
                        JointGraph& graph) {
  const auto& [first, ops] = *lists.begin();
  for (const auto& [rank, others] : lists) {
    for (size_t k = 0; k < std::max(ops.size(), others.size()); ++k) {
      if (k >= ops.size() || k >= others.size()) {
        const bool mine = k < ops.size();
        return BrokenPlan("agreement", "rank ", mine ? first : rank, " op ",
                          mine ? ops[k] : others[k],
                          " is a collective that rank ", mine ? rank : first,
                          " does not issue");
      }
      if (!SameCollective(*by_rank[first], ops[k], *by_rank[rank], others[k])) {
        return BrokenPlan("agreement", "rank ", first, " op ", ops[k],
                          " and rank ", rank, " op ", others[k],
                          " are different collectives of one group");
      }
      if (rank != first) graph.Merge(first, ops[k], rank, others[k]);
    }
  }
  return absl::OkStatus();
}

}  // namespace

bool IsCollective(const Op& op) {
  return (op.kind == OpKind::kNode && op.stream != StreamKind::kCompute) ||
         op.kind == OpKind::kGather || op.kind == OpKind::kReduce ||
         op.kind == OpKind::kControl;
}

// All ranks run this program, so op `i` of every rank folds into one vertex: a
// collective is one vertex anyway, and folding the others can only add cycles,
// never hide one.
absl::Status ProveAgreement(const Subject& s) {
  JointGraph graph;
  graph.AddRank(s.program);
  return NoCycle(graph);
}

absl::Status ProveAgreementOfRanks(absl::Span<const Program* const> by_rank,
                                   const fsdp::World& world,
                                   const fsdp::UnitAssignment& units) {
  JointGraph graph;
  for (const Program* program : by_rank) graph.AddRank(*program);
  for (const auto& [group, lists] : CollectivesByGroup(by_rank, world, units)) {
    RETURN_IF_ERROR(MergeGroup(by_rank, lists, graph));
  }
  return NoCycle(graph);
}

}  // namespace weft::schedule

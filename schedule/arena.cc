#include "schedule/arena.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <tuple>

namespace weft::schedule {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int kJoinInterval = 64;  // ops

int64_t RoundUp(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// What every stream knows to have completed.
StreamClock Settled(const std::array<StreamClock, kNumStreams>& streams) {
  StreamClock settled = streams[0];
  for (const StreamClock& stream : streams) settled.Meet(stream);
  return settled;
}

// Free memory of one arena.
class FreeList {
 public:
  // What lies below `begin` is not its own.
  explicit FreeList(int64_t begin) : top_(begin) {}

  // Offset of `bytes` that may be used by an op that starts at `start`.
  int64_t Take(int64_t bytes, const StreamClock& start) {
    auto begin = free_.begin();
    while (begin != free_.end()) {
      // Grow a run of adjacent usable blocks until it suffices.
      int64_t end = begin->first;
      auto it = begin;
      while (it != free_.end() && it->first == end &&
             start.Covers(it->second.used_until) &&
             end - begin->first < bytes) {
        end += it->second.bytes;
        ++it;
      }
      const bool at_top = end == top_ && it == free_.end();
      if (it != begin && (end - begin->first >= bytes || at_top)) {
        return Carve(begin, it, bytes, end);
      }
      // A block in the middle of a run would give a shorter one.
      if (it == begin) ++it;
      begin = it;
    }
    const int64_t offset = top_;
    top_ += bytes;
    return offset;
  }

  void Give(int64_t offset, int64_t bytes, const StreamClock& used_until) {
    free_.insert({offset, {bytes, used_until}});
  }

  // Joins adjacent blocks that every stream may use: `settled` is known to all.
  void Join(const StreamClock& settled) {
    for (auto it = free_.begin(); it != free_.end();) {
      auto next = std::next(it);
      const bool adjacent =
          next != free_.end() && it->first + it->second.bytes == next->first;
      if (adjacent && settled.Covers(it->second.used_until) &&
          settled.Covers(next->second.used_until)) {
        it->second.bytes += next->second.bytes;
        free_.erase(next);
      } else {
        it = next;
      }
    }
  }

  int64_t top() const { return top_; }

 private:
  struct Block {
    int64_t bytes = 0;
    StreamClock used_until;  // ops that must have completed before reuse
  };
  using Iterator = std::map<int64_t, Block>::iterator;

  // Takes `bytes` out of the adjacent blocks [begin, end), which reach up to
  // `run_end`; a run that is too short lies at the top and is extended.
  int64_t Carve(Iterator begin, Iterator end, int64_t bytes, int64_t run_end) {
    const int64_t offset = begin->first;
    const StreamClock last = std::prev(end)->second.used_until;
    free_.erase(begin, end);
    if (offset + bytes < run_end) {
      free_.insert({offset + bytes, {run_end - offset - bytes, last}});
    }
    top_ = std::max(top_, offset + bytes);
    return offset;
  }

  std::map<int64_t, Block> free_;
  int64_t top_;
};

}  // namespace

std::vector<int> ValuesOf(const Op& op) {
  std::vector<int> values;
  if (op.kind == OpKind::kHostWait) return values;
  auto add = [&values](int value) {
    if (value < 0) return;
    if (std::find(values.begin(), values.end(), value) == values.end()) {
      values.push_back(value);
    }
  };
  for (int value : op.args) add(value);
  for (const ParamUse& use : op.params) add(use.value);
  for (const GradUse& use : op.grads) add(use.value);
  return values;
}

std::vector<Lifetime> Lifetimes(const Program& program) {
  std::vector<Lifetime> lifetimes(program.values.size());
  for (int id = 0; id < program.ops.size(); ++id) {
    for (int value : ValuesOf(program.ops[id])) {
      if (lifetimes[value].first < 0) lifetimes[value].first = id;
      lifetimes[value].last = id;
    }
  }
  return lifetimes;
}

std::vector<int64_t> LiveBytes(const Program& program) {
  std::vector<int64_t> delta(program.ops.size() + 1);
  const std::vector<Lifetime> lifetimes = Lifetimes(program);
  for (int v = 0; v < program.values.size(); ++v) {
    const Value& value = program.values[v];
    if (value.space != model::Space::kDevice || lifetimes[v].first < 0) {
      continue;
    }
    delta[lifetimes[v].first] += value.bytes;
    delta[lifetimes[v].last + 1] -= value.bytes;
  }
  int64_t live = 0;
  for (int64_t& bytes : delta) bytes = live += bytes;
  delta.pop_back();
  return delta;
}

std::vector<int> PoolsOfExchanges(const Program& program,
                                  const model::ModelDecl& model) {
  std::vector<int> pools(program.values.size(), 0);
  std::map<std::tuple<model::NodeKind, model::Phase, int>, int> by_use;
  for (const Op& op : program.ops) {
    if (op.kind != OpKind::kNode) continue;
    const model::NodeDecl& node = model.node(op.layer, op.node);
    const model::PhaseDecl& phase = *node.Find(op.phase);
    if (phase.resource != model::Resource::kExpertParallel) continue;
    for (int i = 0; i < op.args.size(); ++i) {
      if (phase.args[i].access == model::Access::kRead) continue;
      if (program.values[op.args[i]].space != model::Space::kDevice) continue;
      const int next = by_use.size() + 1;
      pools[op.args[i]] =
          by_use.emplace(std::make_tuple(node.kind, op.phase, i), next)
              .first->second;
    }
  }
  return pools;
}

void AssignOffsets(Program& program, const fsdp::UnitAssignment& units,
                   const std::vector<StreamClock>& starts,
                   const std::vector<int>& pools) {
  const std::vector<Lifetime> lifetimes = Lifetimes(program);
  // Pool 0 begins behind the slots; the others, from 0 as if alone, are put
  // behind one another at the end.
  std::map<int, FreeList> device;
  device.emplace(0, program.buffer_slots * SlotBytes(program, units));
  FreeList host(0);
  const auto pool_of = [&](int value) {
    return pools.empty() ? 0 : pools[value];
  };
  const auto memory_of = [&](int v) -> FreeList& {
    if (program.values[v].space == model::Space::kHost) return host;
    return device.emplace(pool_of(v), 0).first->second;
  };
  std::vector<StreamClock> used_until(program.values.size());
  std::array<StreamClock, kNumStreams> latest;
  for (int id = 0; id < program.ops.size(); ++id) {
    const Op& op = program.ops[id];
    latest[static_cast<int>(op.stream)].Add(starts[id]);
    if (id % kJoinInterval == 0) {
      for (auto& [pool, memory] : device) memory.Join(Settled(latest));
    }
    const std::vector<int> used = ValuesOf(op);
    for (int v : used) {
      Value& value = program.values[v];
      if (IsInSlot(program, units, value)) continue;
      if (lifetimes[v].first == id) {
        value.offset = memory_of(v).Take(RoundUp(value.bytes), starts[id]);
      }
      used_until[v].Add(op.stream, id);
    }
    // Only now: what ends with an op is no room for what begins with it.
    for (int v : used) {
      const Value& value = program.values[v];
      if (IsInSlot(program, units, value)) continue;
      if (lifetimes[v].last == id) {
        memory_of(v).Give(value.offset, RoundUp(value.bytes), used_until[v]);
      }
    }
  }
  std::map<int, int64_t> begin;
  for (const auto& [pool, memory] : device) {
    begin[pool] = program.arena_bytes;
    program.arena_bytes += memory.top();
  }
  for (int v = 0; v < program.values.size(); ++v) {
    Value& value = program.values[v];
    if (value.space == model::Space::kDevice && lifetimes[v].first >= 0) {
      value.offset += begin[pool_of(v)];
    }
  }
  program.host_arena_bytes = host.top();
}

}  // namespace weft::schedule

#include <map>
#include <set>
#include <vector>

#include "base/status_macros.h"
#include "schedule/verifier_proofs.h"

namespace weft::schedule {
namespace {

// One use of a value by an op.
struct Use {
  int value = 0;
  bool writes = false;
};

std::vector<Use> UsesOf(const Subject& s, const Op& op) {
  std::vector<Use> uses;
  if (op.kind == OpKind::kNode) {
    const auto& args = s.model.node(op.layer, op.node).Find(op.phase)->args;
    for (int i = 0; i < args.size(); ++i) {
      if (op.args[i] < 0) continue;
      uses.push_back({op.args[i], args[i].access != model::Access::kRead});
    }
    for (const ParamUse& use : op.params) {
      if (use.value >= 0) uses.push_back({use.value, false});
    }
    for (const GradUse& use : op.grads) {
      if (use.value >= 0) uses.push_back({use.value, true});
    }
    return uses;
  }
  for (int value : op.args) {
    uses.push_back({value, op.kind == OpKind::kGather});
  }
  return uses;
}

// Every read follows all writes of its value; nothing but gradients, which add
// up, is written twice.
absl::Status WrittenBeforeRead(const Subject& s, const HappensBefore& before) {
  std::vector<std::vector<int>> writers(s.program.values.size());
  for (int id = 0; id < s.program.ops.size(); ++id) {
    for (const Use& use : UsesOf(s, s.program.ops[id])) {
      const ValueKind kind = s.program.values[use.value].kind;
      std::vector<int>& by = writers[use.value];
      if (!use.writes || (!by.empty() && by.back() == id)) continue;
      if (!by.empty() && kind != ValueKind::kGradient) {
        return Broken("values", id, "writes value ", use.value, ", as op ",
                      by.back(), " does");
      }
      by.push_back(id);
    }
  }
  for (int id = 0; id < s.program.ops.size(); ++id) {
    for (const Use& use : UsesOf(s, s.program.ops[id])) {
      if (use.writes) continue;
      if (writers[use.value].empty()) {
        return Broken("values", id, "reads value ", use.value,
                      ", which nothing writes");
      }
      for (int writer : writers[use.value]) {
        if (!before(writer, id)) {
          return Broken("values", id, "reads value ", use.value, " before op ",
                        writer, " has written it");
        }
      }
    }
  }
  return absl::OkStatus();
}

// Whether the device, not the launching thread, reads the host values of an op.
bool ReadsOnDevice(const Op& op) {
  return op.kind == OpKind::kControl || op.kind == OpKind::kTap;
}

// What the launching thread reads, it has waited for.
absl::Status HostValuesAwaited(const Subject& s) {
  std::set<int> awaited;
  for (int id = 0; id < s.program.ops.size(); ++id) {
    const Op& op = s.program.ops[id];
    if (op.kind == OpKind::kHostWait) {
      awaited.insert(op.args[0]);
      continue;
    }
    for (const Use& use : UsesOf(s, op)) {
      const bool host =
          s.program.values[use.value].space == model::Space::kHost;
      if (host && !use.writes && !ReadsOnDevice(op) &&
          awaited.count(use.value) == 0) {
        return Broken("values", id, "reads host value ", use.value,
                      " that the launching thread has not waited for");
      }
    }
  }
  return absl::OkStatus();
}

// Who occupies the memory of one arena, swept in launch order.
class Occupancy {
 public:
  Occupancy(const Subject& s, const HappensBefore& before)
      : s_(s),
        before_(before),
        uses_(s.program.values.size()),
        evicted_(s.program.values.size(), -1) {}

  absl::Status Use(int id, int value) {
    if (evicted_[value] >= 0) {
      return Broken("values", id, "uses value ", value, ", whose memory op ",
                    evicted_[value], " has taken");
    }
    if (uses_[value].empty()) RETURN_IF_ERROR(Enter(id, value));
    uses_[value].push_back(id);
    return absl::OkStatus();
  }

 private:
  // Memory up to `end` that `value` was the last to take.
  struct Part {
    int64_t end = 0;
    int value = -1;
  };

  // A value may lose its memory part by part: each part is held until another
  // value takes it.
  absl::Status Enter(int id, int value) {
    const Value& v = s_.program.values[value];
    const int64_t end = v.offset + v.bytes;
    if (v.bytes == 0) return absl::OkStatus();
    Cut(v.offset);
    Cut(end);
    const auto first = by_begin_.lower_bound(v.offset);
    const auto last = by_begin_.lower_bound(end);
    for (auto it = first; it != last; ++it) {
      const int holder = it->second.value;
      for (int use : uses_[holder]) {
        if (!before_(use, id)) {
          return Broken("values", id, "takes the memory of value ", holder,
                        ", which op ", use, " may still use");
        }
      }
      evicted_[holder] = id;
    }
    by_begin_.erase(first, last);
    by_begin_[v.offset] = {end, value};
    return absl::OkStatus();
  }

  // Splits the part that reaches across `at`.
  void Cut(int64_t at) {
    auto it = by_begin_.lower_bound(at);
    if (it == by_begin_.begin()) return;
    --it;
    if (it->second.end <= at) return;
    by_begin_[at] = it->second;
    it->second.end = at;
  }

  const Subject& s_;
  const HappensBefore& before_;
  std::map<int64_t, Part> by_begin_;    // by offset
  std::vector<std::vector<int>> uses_;  // by value
  std::vector<int> evicted_;            // by value: an op that took a part
};

constexpr int64_t kAlignment = 64;  // bytes

absl::Status InsideArena(const Subject& s) {
  if (s.program.arena_bytes < 0 || s.program.host_arena_bytes < 0) {
    return BrokenPlan("values", "arenas of ", s.program.arena_bytes, " and ",
                      s.program.host_arena_bytes, " bytes");
  }
  for (int v = 0; v < s.program.values.size(); ++v) {
    const Value& value = s.program.values[v];
    const int64_t arena = value.space == model::Space::kHost
                              ? s.program.host_arena_bytes
                              : s.program.arena_bytes;
    if (value.offset < 0 || value.bytes < 0 ||
        value.bytes > arena - value.offset) {
      return BrokenValue("values", s.program, v, "of ", value.bytes,
                         " bytes at ", value.offset, " exceeds the arena of ",
                         arena);
    }
    if (value.offset % kAlignment != 0) {
      return BrokenValue("values", s.program, v, "at ", value.offset,
                         ", which is no multiple of ", kAlignment);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ProveValues(const Subject& s, const HappensBefore& before) {
  RETURN_IF_ERROR(InsideArena(s));
  RETURN_IF_ERROR(WrittenBeforeRead(s, before));
  RETURN_IF_ERROR(HostValuesAwaited(s));
  Occupancy device(s, before);
  Occupancy host(s, before);
  for (int id = 0; id < s.program.ops.size(); ++id) {
    for (const Use& use : UsesOf(s, s.program.ops[id])) {
      const bool on_host =
          s.program.values[use.value].space == model::Space::kHost;
      RETURN_IF_ERROR((on_host ? host : device).Use(id, use.value));
    }
  }
  return absl::OkStatus();
}

}  // namespace weft::schedule

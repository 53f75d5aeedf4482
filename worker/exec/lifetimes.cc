#include "worker/exec/lifetimes.h"

#include <algorithm>
#include <map>

#include "schedule/happens_before.h"

namespace weft::exec {
namespace {

using schedule::HappensBefore;
using schedule::Op;
using schedule::OpKind;
using schedule::Program;
using schedule::Value;

template <typename Fn>
void ForEachValue(const Op& op, Fn fn) {
  for (int value : op.args) {
    if (value >= 0) fn(value);
  }
  for (const schedule::ParamUse& use : op.params) {
    if (use.value >= 0) fn(use.value);
  }
  for (const schedule::GradUse& use : op.grads) {
    if (use.value >= 0) fn(use.value);
  }
}

// Ops that use each value, ascending.
std::vector<std::vector<int>> UsersOf(const Program& program) {
  std::vector<std::vector<int>> users(program.values.size());
  for (int id = 0; id < program.ops.size(); ++id) {
    ForEachValue(program.ops[id], [&](int value) {
      if (users[value].empty() || users[value].back() != id) {
        users[value].push_back(id);
      }
    });
  }
  return users;
}

// By value: the op that releases it; -1: none does.
std::vector<int> ReleasesOf(const Program& program) {
  std::vector<int> releases(program.values.size(), -1);
  for (int id = 0; id < program.ops.size(); ++id) {
    const Op& op = program.ops[id];
    if (op.kind == OpKind::kRelease) releases[op.args.front()] = id;
  }
  return releases;
}

// Which value last took each part of an arena.
class Occupants {
 public:
  // Gives [begin, end) to `value`; calls `evicted` with each value that held a
  // part of it, some perhaps twice.
  template <typename Fn>
  void Take(int64_t begin, int64_t end, int value, Fn evicted) {
    if (begin >= end) return;
    Cut(begin);
    Cut(end);
    const auto first = by_begin_.lower_bound(begin);
    const auto last = by_begin_.lower_bound(end);
    for (auto it = first; it != last; ++it) evicted(it->second.value);
    by_begin_.erase(first, last);
    by_begin_[begin] = {end, value};
  }

 private:
  struct Part {
    int64_t end = 0;
    int value = -1;
  };

  // Splits the part that reaches across `at`.
  void Cut(int64_t at) {
    auto it = by_begin_.lower_bound(at);
    if (it == by_begin_.begin()) return;
    --it;
    if (it->second.end <= at) return;
    by_begin_[at] = it->second;
    it->second.end = at;
  }

  std::map<int64_t, Part> by_begin_;
};

// By value: first ops of the values that are next to take memory of it. Those
// that take it later come after them.
std::vector<std::vector<int>> ReusersOf(
    const Program& program, const std::vector<ValueLifetime>& lifetimes) {
  std::vector<int> order;
  for (int v = 0; v < program.values.size(); ++v) {
    if (lifetimes[v].first >= 0) order.push_back(v);
  }
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return lifetimes[a].first < lifetimes[b].first;
  });
  std::vector<std::vector<int>> reusers(program.values.size());
  Occupants device;
  Occupants host;
  for (int v : order) {
    const Value& value = program.values[v];
    Occupants& arena = value.space == model::Space::kHost ? host : device;
    arena.Take(value.offset, value.offset + value.bytes, v, [&](int evicted) {
      reusers[evicted].push_back(lifetimes[v].first);
    });
  }
  return reusers;
}

int DeadAfter(const Program& program, const HappensBefore& before,
              const std::vector<int>& users, const std::vector<int>& reusers) {
  for (int id = users.back(); id < program.ops.size(); ++id) {
    if (program.ops[id].kind == OpKind::kHostWait) continue;
    auto done = [&](int user) { return user == id || before(user, id); };
    if (!std::all_of(users.begin(), users.end(), done)) continue;
    auto later = [&](int reuser) { return before(id, reuser); };
    if (std::all_of(reusers.begin(), reusers.end(), later)) return id;
    // A later op does not come before a reuser that this one comes too late
    // for, unless it runs on another stream; give up past the first reuser.
    if (!reusers.empty() &&
        id >= *std::min_element(reusers.begin(), reusers.end())) {
      return -1;
    }
  }
  return -1;
}

// Pages of one arena, marked and counted.
class Pages {
 public:
  Pages(int64_t bytes, int64_t page_bytes)
      : page_bytes_(page_bytes),
        bytes_(bytes),
        marked_((bytes + page_bytes - 1) / page_bytes) {}

  void Mark(int64_t begin, int64_t end) {
    if (begin >= end) return;
    for (int64_t p = begin / page_bytes_; p <= (end - 1) / page_bytes_; ++p) {
      marked_[p] = true;
    }
  }
  // Marks the pages that [begin, end) covers in part.
  void MarkEdges(int64_t begin, int64_t end) {
    if (begin % page_bytes_ != 0) Mark(begin, begin + 1);
    if (end % page_bytes_ != 0) Mark(end - 1, end);
  }
  int64_t MarkedBytes() const {
    int64_t bytes = 0;
    for (int64_t p = 0; p < marked_.size(); ++p) {
      if (marked_[p]) bytes += std::min(page_bytes_, bytes_ - p * page_bytes_);
    }
    return bytes;
  }

 private:
  int64_t page_bytes_;
  int64_t bytes_;
  std::vector<bool> marked_;
};

bool OnDevice(const Value& value) {
  return value.space == model::Space::kDevice && value.bytes > 0;
}

// Marks what a run of the program leaves backed.
void MarkLeft(const Program& program,
              const std::vector<ValueLifetime>& lifetimes, Pages& pages) {
  for (int v = 0; v < program.values.size(); ++v) {
    const Value& value = program.values[v];
    if (!OnDevice(value) || lifetimes[v].first < 0) continue;
    const int64_t end = value.offset + value.bytes;
    pages.MarkEdges(value.offset, end);
    if (lifetimes[v].dead_after < 0) pages.Mark(value.offset, end);
  }
}

}  // namespace

std::vector<ValueLifetime> UsesOf(const Program& program) {
  std::vector<ValueLifetime> uses(program.values.size());
  for (int id = 0; id < program.ops.size(); ++id) {
    ForEachValue(program.ops[id], [&](int value) {
      if (uses[value].first < 0) uses[value].first = id;
      uses[value].last = id;
    });
  }
  return uses;
}

std::vector<ValueLifetime> LifetimesOf(const Program& program) {
  std::vector<ValueLifetime> lifetimes = UsesOf(program);
  const std::vector<std::vector<int>> users = UsersOf(program);
  const HappensBefore before(program);
  const std::vector<int> releases = ReleasesOf(program);
  const std::vector<std::vector<int>> reusers = ReusersOf(program, lifetimes);
  for (int v = 0; v < users.size(); ++v) {
    if (users[v].empty()) continue;
    if (releases[v] >= 0) {
      lifetimes[v].dead_after = releases[v];
      continue;
    }
    lifetimes[v].dead_after = DeadAfter(program, before, users[v], reusers[v]);
  }
  return lifetimes;
}

std::vector<int64_t> AllowedBytes(const Program& program,
                                  const std::vector<ValueLifetime>& lifetimes,
                                  const std::vector<const Program*>& others,
                                  int64_t page_bytes) {
  const HappensBefore before(program);
  int64_t arena_bytes = program.arena_bytes;
  for (const Program* other : others) {
    arena_bytes = std::max(arena_bytes, other->arena_bytes);
  }
  Pages left(arena_bytes, page_bytes);
  MarkLeft(program, lifetimes, left);
  for (const Program* other : others) {
    MarkLeft(*other, LifetimesOf(*other), left);
  }
  std::vector<bool> ends(program.ops.size());
  for (int v = 0; v < program.values.size(); ++v) {
    if (!OnDevice(program.values[v]) || lifetimes[v].dead_after < 0) continue;
    ends[lifetimes[v].dead_after] = true;
  }
  std::vector<int64_t> allowed(program.ops.size(), -1);
  for (int id = 0; id < program.ops.size(); ++id) {
    if (!ends[id]) continue;
    Pages pages = left;
    for (int v = 0; v < program.values.size(); ++v) {
      const Value& value = program.values[v];
      const ValueLifetime& life = lifetimes[v];
      if (!OnDevice(value) || life.first < 0) continue;
      if (before(id, life.first)) continue;  // not begun
      const int dead = life.dead_after;
      if (dead == id || (dead >= 0 && before(dead, id))) continue;
      pages.Mark(value.offset, value.offset + value.bytes);
    }
    allowed[id] = pages.MarkedBytes();
  }
  return allowed;
}

int64_t PeakLiveBytes(const Program& program,
                      const std::vector<ValueLifetime>& lifetimes) {
  std::vector<int64_t> change(program.ops.size() + 1);
  for (int v = 0; v < program.values.size(); ++v) {
    if (!OnDevice(program.values[v]) || lifetimes[v].first < 0) continue;
    change[lifetimes[v].first] += program.values[v].bytes;
    change[lifetimes[v].last + 1] -= program.values[v].bytes;
  }
  int64_t live = 0;
  int64_t peak = 0;
  for (int64_t bytes : change) {
    live += bytes;
    peak = std::max(peak, live);
  }
  return peak;
}

}  // namespace weft::exec

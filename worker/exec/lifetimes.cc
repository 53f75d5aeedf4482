#include "worker/exec/lifetimes.h"

#include <algorithm>

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
  for (int value : op.args) fn(value);
  for (const schedule::ParamUse& use : op.params) {
    if (use.value >= 0) fn(use.value);
  }
  for (const schedule::GradUse& use : op.grads) {
    if (use.value >= 0) fn(use.value);
  }
}

bool Overlap(const Value& a, const Value& b) {
  return a.space == b.space && a.offset < b.offset + b.bytes &&
         b.offset < a.offset + a.bytes;
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

// First ops of later values that take memory of `value`.
std::vector<int> Reusers(const Program& program, int value,
                         const std::vector<ValueLifetime>& lifetimes) {
  std::vector<int> reusers;
  for (int other = 0; other < program.values.size(); ++other) {
    if (other == value || lifetimes[other].first < 0) continue;
    if (lifetimes[other].first < lifetimes[value].first) continue;
    if (!Overlap(program.values[value], program.values[other])) continue;
    reusers.push_back(lifetimes[other].first);
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

}  // namespace

std::vector<ValueLifetime> LifetimesOf(const Program& program) {
  const std::vector<std::vector<int>> users = UsersOf(program);
  std::vector<ValueLifetime> lifetimes(program.values.size());
  for (int v = 0; v < users.size(); ++v) {
    if (users[v].empty()) continue;
    lifetimes[v].first = users[v].front();
    lifetimes[v].last = users[v].back();
  }
  const HappensBefore before(program);
  const std::vector<int> releases = ReleasesOf(program);
  for (int v = 0; v < users.size(); ++v) {
    if (users[v].empty()) continue;
    if (releases[v] >= 0) {
      lifetimes[v].dead_after = releases[v];
      continue;
    }
    lifetimes[v].dead_after =
        DeadAfter(program, before, users[v], Reusers(program, v, lifetimes));
  }
  return lifetimes;
}

std::vector<int64_t> AllowedBytes(const Program& program,
                                  const std::vector<ValueLifetime>& lifetimes,
                                  int64_t page_bytes) {
  const HappensBefore before(program);
  Pages edges(program.arena_bytes, page_bytes);
  std::vector<bool> ends(program.ops.size());
  for (int v = 0; v < program.values.size(); ++v) {
    const Value& value = program.values[v];
    if (!OnDevice(value) || lifetimes[v].first < 0) continue;
    edges.MarkEdges(value.offset, value.offset + value.bytes);
    if (lifetimes[v].dead_after >= 0) ends[lifetimes[v].dead_after] = true;
  }
  std::vector<int64_t> allowed(program.ops.size(), -1);
  for (int id = 0; id < program.ops.size(); ++id) {
    if (!ends[id]) continue;
    Pages pages = edges;
    for (int v = 0; v < program.values.size(); ++v) {
      const Value& value = program.values[v];
      const ValueLifetime& life = lifetimes[v];
      if (!OnDevice(value) || life.first < 0) continue;
      if (before(id, life.first)) continue;  // not begun
      const int dead = life.dead_after;
      if (dead >= 0 && (dead == id || before(dead, id))) continue;
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

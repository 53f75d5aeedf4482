// The memory curve of a step: which values are alive when.
#include <algorithm>
#include <map>

#include "schedule/arena.h"
#include "schedule/memory_plan.h"
#include "schedule/simulate.h"

namespace weft::schedule {
namespace {

void Add(const Plan& plan, const Value& value, int64_t bytes,
         MemoryPoint& point) {
  switch (value.kind) {
    case ValueKind::kActivation:
      (IsRouted(plan.model, value) ? point.routed : point.activations) += bytes;
      break;
    case ValueKind::kGathered:
      point.gathered += bytes;
      break;
    case ValueKind::kGradient:
      point.gradients += bytes;
      break;
  }
}

// By value, when it begins and ends.
std::vector<OpTime> Lives(const Program& program,
                          absl::Span<const OpTime> times) {
  std::vector<OpTime> lives(program.values.size(), {-1, -1});
  for (int id = 0; id < program.ops.size(); ++id) {
    for (int value : ValuesOf(program.ops[id])) {
      OpTime& life = lives[value];
      const bool is_first = life.begin < 0;
      life.begin =
          is_first ? times[id].begin : std::min(life.begin, times[id].begin);
      life.end = std::max(life.end, times[id].end);
    }
  }
  return lives;
}

}  // namespace

std::vector<MemoryPoint> MemoryCurve(const Plan& plan, const Program& program,
                                     absl::Span<const OpTime> times,
                                     const RoutedRows& rows) {
  const std::vector<OpTime> lives = Lives(program, times);
  std::map<double, MemoryPoint> changes;
  for (int v = 0; v < program.values.size(); ++v) {
    const Value& value = program.values[v];
    if (value.space != model::Space::kDevice || lives[v].begin < 0) continue;
    const int64_t bytes = BytesOf(plan, value, rows);
    Add(plan, value, bytes, changes[lives[v].begin]);
    Add(plan, value, -bytes, changes[lives[v].end]);
  }
  std::vector<MemoryPoint> curve;
  MemoryPoint now;
  for (const auto& [seconds, change] : changes) {
    now.seconds = seconds;
    now.activations += change.activations;
    now.routed += change.routed;
    now.gathered += change.gathered;
    now.gradients += change.gradients;
    curve.push_back(now);
  }
  return curve;
}

int64_t PeakBytes(const std::vector<MemoryPoint>& curve) {
  int64_t peak = 0;
  for (const MemoryPoint& point : curve) peak = std::max(peak, point.total());
  return peak;
}

}  // namespace weft::schedule

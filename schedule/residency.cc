#include "schedule/residency.h"

#include <algorithm>
#include <functional>
#include <tuple>

#include "schedule/program.h"

namespace weft::schedule {
namespace {

// For every bucket the positions that read it, ascending.
std::vector<std::vector<int>> Readers(const std::vector<NodePhase>& order,
                                      const model::ModelDecl& model,
                                      const fsdp::UnitAssignment& units) {
  std::vector<std::vector<int>> readers(units.buckets.size());
  for (int position = 0; position < order.size(); ++position) {
    const NodePhase& at = order[position];
    const model::PhaseDecl* phase =
        model.node(at.layer, at.node).Find(at.phase);
    for (int param : phase->params_read) {
      std::vector<int>& list = readers[units.bucket_of_param[param]];
      if (list.empty() || list.back() != position) list.push_back(position);
    }
  }
  return readers;
}

// What gathered buckets of layers take, by position.
class Room {
 public:
  Room(const std::vector<NodePhase>& order, const ResidencyBudget& budget)
      : idle_(order.size()), gathered_(order.size()), slots_(budget.slots) {
    for (const NodePhase& at : order) {
      budget_.push_back(at.phase == model::Phase::kForward
                            ? budget.forward_bytes
                            : budget.backward_bytes);
    }
  }

  // Earliest position from which `bytes` may wait for a reader at `reader`,
  // not before `floor`.
  int Earliest(int64_t bytes, int reader, int floor) const {
    int position = reader;
    while (position > floor && Fits(bytes, position - 1)) --position;
    return position;
  }

  // A bucket waits from `from` for its reader at `reader`.
  void Add(int64_t bytes, int from, int reader) {
    for (int position = from; position < reader; ++position) {
      idle_[position] += bytes;
      ++gathered_[position];
    }
    ++gathered_[reader];
  }

 private:
  bool Fits(int64_t bytes, int position) const {
    return idle_[position] + bytes <= budget_[position] &&
           (slots_ == 0 || gathered_[position] < slots_);
  }

  std::vector<int64_t> idle_;    // bytes that are not being read
  std::vector<int> gathered_;    // buckets
  std::vector<int64_t> budget_;  // of idle bytes
  const int slots_;
};

// Gives stays of layers slots. `stays` are in order of their gathers, and never
// more than `slots` of them overlap.
void AssignSlots(const fsdp::UnitAssignment& units, int slots,
                 std::vector<Stay>& stays) {
  std::vector<int> free_from(slots);  // by slot
  for (Stay& stay : stays) {
    if (units.units[units.buckets[stay.bucket].unit].root) continue;
    const auto longest = std::min_element(free_from.begin(), free_from.end());
    stay.slot = longest - free_from.begin();
    *longest = stay.release + 1;
  }
}

}  // namespace

int64_t TwoLargestUnits(const fsdp::UnitAssignment& units,
                        int64_t (fsdp::Bucket::*bytes)() const) {
  std::vector<int64_t> sums;
  for (const fsdp::Unit& unit : units.units) {
    if (unit.root) continue;
    int64_t sum = 0;
    for (int bucket : unit.buckets) sum += (units.buckets[bucket].*bytes)();
    sums.push_back(sum);
  }
  std::sort(sums.begin(), sums.end(), std::greater<>());
  sums.resize(2);
  return sums[0] + sums[1];
}

std::vector<Stay> PlanStays(const std::vector<NodePhase>& order,
                            const model::ModelDecl& model,
                            const fsdp::UnitAssignment& units,
                            fsdp::Strategy strategy,
                            const ResidencyBudget& budget) {
  const auto readers = Readers(order, model, units);
  std::vector<Stay> stays;
  std::vector<std::pair<int, int>> reads;  // (position, bucket) of the others
  for (const fsdp::Bucket& bucket : units.buckets) {
    const std::vector<int>& list = readers[bucket.id];
    if (WeightsResident(strategy, bucket) || list.empty()) continue;
    if (GatheredOnce(strategy, units.units[bucket.unit].root)) {
      stays.push_back({bucket.id, 0, list.front(), list.back()});
      continue;
    }
    for (int position : list) reads.push_back({position, bucket.id});
  }
  std::sort(reads.begin(), reads.end());

  Room room(order, budget);
  std::vector<int> latest(units.buckets.size(), -1);  // stay of each bucket
  int last_gather = 0;
  for (const auto& [position, bucket] : reads) {
    const int64_t bytes = units.buckets[bucket].weight_bytes();
    const int previous = latest[bucket];
    const int floor = previous >= 0 ? stays[previous].release + 1 : last_gather;
    const int earliest = room.Earliest(bytes, position, floor);
    if (previous >= 0 && earliest <= stays[previous].release + 1) {
      room.Add(bytes, stays[previous].release + 1, position);
      stays[previous].release = position;
      continue;
    }
    const int gather = std::max(earliest, last_gather);
    room.Add(bytes, gather, position);
    last_gather = gather;
    latest[bucket] = stays.size();
    stays.push_back({bucket, gather, position, position});
  }
  std::sort(stays.begin(), stays.end(), [](const Stay& a, const Stay& b) {
    return std::tie(a.gather, a.first_reader, a.bucket) <
           std::tie(b.gather, b.first_reader, b.bucket);
  });
  if (budget.slots > 0) AssignSlots(units, budget.slots, stays);
  return stays;
}

}  // namespace weft::schedule

#include "schedule/residency.h"

#include <algorithm>
#include <functional>
#include <tuple>

#include "schedule/program.h"

namespace weft::schedule {
namespace {

int64_t Bytes(const fsdp::Bucket& bucket) {
  return bucket.elements * SizeOf(bucket.dtype);
}

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

// Bytes that are gathered but not being read, by position.
class IdleBytes {
 public:
  IdleBytes(int positions, int64_t budget)
      : idle_(positions), budget_(budget) {}

  // Earliest position from which `bytes` may wait for a reader at `reader`,
  // not before `floor`.
  int Earliest(int64_t bytes, int reader, int floor) const {
    int position = reader;
    while (position > floor && idle_[position - 1] + bytes <= budget_) {
      --position;
    }
    return position;
  }

  void Add(int64_t bytes, int from, int to) {
    for (int position = from; position < to; ++position) {
      idle_[position] += bytes;
    }
  }

 private:
  std::vector<int64_t> idle_;
  const int64_t budget_;
};

}  // namespace

int64_t TwoLargestUnits(const fsdp::UnitAssignment& units) {
  std::vector<int64_t> bytes;
  for (const fsdp::Unit& unit : units.units) {
    if (unit.root) continue;
    int64_t sum = 0;
    for (int bucket : unit.buckets) sum += Bytes(units.buckets[bucket]);
    bytes.push_back(sum);
  }
  std::sort(bytes.begin(), bytes.end(), std::greater<>());
  bytes.resize(2);
  return bytes[0] + bytes[1];
}

std::vector<Stay> PlanStays(const std::vector<NodePhase>& order,
                            const model::ModelDecl& model,
                            const fsdp::UnitAssignment& units,
                            fsdp::Strategy strategy, int64_t prefetch_bytes) {
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

  IdleBytes idle(order.size(), prefetch_bytes);
  std::vector<int> latest(units.buckets.size(), -1);  // stay of each bucket
  int last_gather = 0;
  for (const auto& [position, bucket] : reads) {
    const int64_t bytes = Bytes(units.buckets[bucket]);
    const int previous = latest[bucket];
    const int floor = previous >= 0 ? stays[previous].release + 1 : last_gather;
    const int earliest = idle.Earliest(bytes, position, floor);
    if (previous >= 0 && earliest <= stays[previous].release + 1) {
      idle.Add(bytes, stays[previous].release + 1, position);
      stays[previous].release = position;
      continue;
    }
    const int gather = std::max(earliest, last_gather);
    idle.Add(bytes, gather, position);
    last_gather = gather;
    latest[bucket] = stays.size();
    stays.push_back({bucket, gather, position, position});
  }
  std::sort(stays.begin(), stays.end(), [](const Stay& a, const Stay& b) {
    return std::tie(a.gather, a.first_reader, a.bucket) <
           std::tie(b.gather, b.first_reader, b.bucket);
  });
  return stays;
}

}  // namespace weft::schedule

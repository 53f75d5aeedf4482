#include <algorithm>
#include <cstdint>

#include "schedule/verifier_proofs.h"

namespace weft::schedule {
namespace {

bool IsOfLayer(const Subject& s, const fsdp::Bucket& bucket) {
  return !s.units.units[bucket.unit].root;
}

// Bytes of a slot: every bucket of a layer that is gathered fits.
int64_t LargestGathered(const Subject& s) {
  int64_t largest = 0;
  for (const Value& value : s.program.values) {
    if (value.kind != ValueKind::kGathered) continue;
    const fsdp::Bucket& bucket = s.units.buckets[value.bucket];
    if (IsOfLayer(s, bucket)) largest = std::max(largest, value.bytes);
  }
  return largest;
}

}  // namespace

absl::Status ProveSlots(const Subject& s) {
  const int64_t slots = s.program.buffer_slots;
  if (slots < 0) return BrokenPlan("slots", slots, " slots");
  if (slots == 0) return absl::OkStatus();
  if (s.program.strategy != fsdp::Strategy::kOptimGradsParams) {
    return BrokenPlan("slots", slots, " slots with ",
                      fsdp::Name(s.program.strategy),
                      ", whose weights stay for the step");
  }
  const int64_t bytes = LargestGathered(s);
  if (bytes == 0) return absl::OkStatus();
  for (int v = 0; v < s.program.values.size(); ++v) {
    const Value& value = s.program.values[v];
    if (value.space == model::Space::kHost || value.bytes == 0) continue;
    const bool in_slot = value.kind == ValueKind::kGathered &&
                         IsOfLayer(s, s.units.buckets[value.bucket]);
    const bool right =
        in_slot ? value.offset % bytes == 0 && value.offset / bytes < slots
                : value.offset / bytes >= slots;
    if (right) continue;
    return BrokenValue("slots", s.program, v, "of ", value.bytes, " bytes at ",
                       value.offset,
                       in_slot ? " does not begin a slot" : " lies in a slot",
                       "; there are ", slots, " of ", bytes, " bytes");
  }
  return absl::OkStatus();
}

}  // namespace weft::schedule

#include "schedule/memory_plan.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "base/dtype.h"
#include "schedule/arena.h"

namespace weft::schedule {
namespace {

constexpr int64_t kFloat = sizeof(float);

// Bytes of values that `counts` names, live while the op runs at which most
// bytes are.
template <typename Predicate>
int64_t BytesAtPeak(const Program& program, Predicate counts) {
  const std::vector<int64_t> live = LiveBytes(program);
  const int peak = std::max_element(live.begin(), live.end()) - live.begin();
  const std::vector<Lifetime> lifetimes = Lifetimes(program);
  int64_t bytes = 0;
  for (int v = 0; v < program.values.size(); ++v) {
    const bool is_live = lifetimes[v].first >= 0 &&
                         lifetimes[v].first <= peak &&
                         peak <= lifetimes[v].last;
    if (is_live && counts(program.values[v])) bytes += program.values[v].bytes;
  }
  return bytes;
}

// What stays beside the arena and the state: one reduced slice on its way to
// its shard, the tables of rotary positions, and what optimizers read.
int64_t StagingBytes(const Plan& plan) {
  int64_t largest_slice = 0;
  for (const fsdp::Bucket& bucket : plan.units.buckets) {
    if (bucket.frozen) continue;  // nothing is reduced
    largest_slice =
        std::max(largest_slice, bucket.gradient_bytes() / bucket.group_size);
  }
  return largest_slice + plan.shape.rotary_table_elements() * kFloat +
         kOptimizerScalarBytes;
}

void AddState(const Plan& plan, v1::MemoryPlan& memory) {
  const fsdp::Strategy strategy = plan.strategy;
  int64_t copies = 0;     // bytes, of resident weights in another format
  int64_t weights = 0;    // elements, like moments
  int64_t gradients = 0;  // bytes
  int64_t moments = 0;
  for (const fsdp::Bucket& bucket : plan.units.buckets) {
    const auto held = [&](bool is_whole) {
      return is_whole ? bucket.elements : bucket.slice_elements();
    };
    weights += held(WeightsResident(strategy, bucket));
    if (WeightsResident(strategy, bucket) && bucket.dtype != DType::kF32) {
      copies += bucket.weight_bytes();
    }
    if (bucket.frozen) continue;
    gradients +=
        held(GradientsResident(strategy)) * SizeOf(bucket.gradient_dtype);
    moments += plan.moments * held(strategy == fsdp::Strategy::kNoShard);
  }
  memory.set_parameters(copies);
  memory.set_main_weights(weights * kFloat);
  memory.set_gradients(gradients);
  memory.set_optimizer(moments * kFloat);
}

}  // namespace

const Program& LargestProgram(const Plan& plan) {
  const Program* largest = &plan.train;
  for (const std::optional<Program>* other : {&plan.eval, &plan.tapped}) {
    if (other->has_value() && (*other)->arena_bytes > largest->arena_bytes) {
      largest = &**other;
    }
  }
  return *largest;
}

bool IsRouted(const model::ModelDecl& model, const Value& value) {
  return value.kind == ValueKind::kActivation &&
         model.values[value.decl].rows == model::Rows::kReceived;
}

int64_t GatheredAtPeak(const Program& program) {
  return BytesAtPeak(program, [](const Value& value) {
    return value.kind == ValueKind::kGathered;
  });
}

v1::MemoryPlan PlanMemory(const Plan& plan) {
  v1::MemoryPlan memory;
  AddState(plan, memory);
  const Program& largest = LargestProgram(plan);
  const int64_t routed = BytesAtPeak(
      largest, [&](const Value& value) { return IsRouted(plan.model, value); });
  memory.set_routed_values(routed);
  memory.set_static_values(largest.arena_bytes - routed + StagingBytes(plan));
  return memory;
}

int64_t TotalBytes(const v1::MemoryPlan& memory) {
  return memory.parameters() + memory.main_weights() + memory.gradients() +
         memory.optimizer() + memory.static_values() + memory.routed_values();
}

}  // namespace weft::schedule

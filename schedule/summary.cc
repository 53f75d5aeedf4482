#include <cstdint>
#include <functional>
#include <numeric>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "schedule/memory_plan.h"
#include "schedule/plan.h"

namespace weft::schedule {
namespace {

int64_t Parameters(const model::ModelDecl& model) {
  int64_t total = 0;
  for (const model::ParamDecl& param : model.params) {
    total += std::accumulate(param.shape.begin(), param.shape.end(), int64_t{1},
                             std::multiplies<int64_t>());
  }
  return total;
}

}  // namespace

v1::PlanSummary Summarize(const Plan& plan) {
  v1::PlanSummary summary;
  summary.set_ops(plan.train.ops.size());
  summary.set_microbatches(plan.train.microbatches);
  summary.set_classes(1);
  summary.set_arena_bytes(LargestProgram(plan).arena_bytes);
  v1::MemoryPlan& memory = *summary.mutable_memory();
  memory = PlanMemory(plan);
  summary.set_state_bytes(memory.parameters() + memory.main_weights() +
                          memory.gradients() + memory.optimizer());
  summary.set_parameters(Parameters(plan.model));
  summary.set_units(plan.units.units.size());
  return summary;
}

int LeastBufferSlots(const Plan& plan) {
  size_t most = 0;
  for (const model::LayerDecl& layer : plan.model.layers) {
    for (const model::NodeDecl& node : layer.nodes) {
      for (const model::PhaseDecl& phase : node.phases) {
        std::set<int> gathered;
        for (int param : phase.params_read) {
          const fsdp::Bucket& bucket =
              plan.units.buckets[plan.units.bucket_of_param[param]];
          if (WeightsResident(plan.strategy, bucket) ||
              plan.units.units[bucket.unit].root)
            continue;
          gathered.insert(bucket.id);
        }
        most = std::max(most, gathered.size());
      }
    }
  }
  return most;
}

std::string DescribeRank(const Plan& plan, int rank) {
  const auto group = [&](fsdp::Axis axis) {
    return absl::StrCat(fsdp::Name(axis), "=[",
                        absl::StrJoin(plan.world.Members(axis, rank), " "),
                        "]");
  };
  return absl::StrCat("rank ", rank, " of ", plan.world.size, ": ",
                      group(fsdp::Axis::kEp), " ", group(fsdp::Axis::kEdp),
                      "\n");
}

}  // namespace weft::schedule

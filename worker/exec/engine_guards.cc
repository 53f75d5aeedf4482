// What an engine compares between two steps.
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/exec/engine_impl.h"
#include "worker/exec/fragment_file.h"

namespace weft::exec {
namespace {

constexpr int64_t kDefaultReplicaCheckSteps = 100;
constexpr int64_t kDefaultStuckParameterSteps = 10;

// Steps whose learning rate is a smaller share of the peak do not count for
// stuck parameters: at the ends of a schedule updates may well vanish in fp32.
constexpr double kLeastShareOfPeak = 0.1;

}  // namespace

absl::Status EngineImpl::PrepareGuards() {
  const v1::GuardsConfig& guards = options_.job.guards();
  replica_check_steps_ = guards.has_replica_check_steps()
                             ? guards.replica_check_steps()
                             : kDefaultReplicaCheckSteps;
  const int64_t stuck_steps = guards.has_stuck_parameter_steps()
                                  ? guards.stuck_parameter_steps()
                                  : kDefaultStuckParameterSteps;
  if (replica_check_steps_ > 0 && plan_.world.size > 1) {
    ReplicaCheck::Options options;
    options.plan = &plan_;
    options.device = options_.device;
    options.control = options_.comms.control;
    options.buckets = buckets_.get();
    options.scalars = &scalars();
    options.tables = tables_.get();
    if (expert_biases_ != nullptr) {
      options.expert_biases = expert_biases_->all();
    }
    ASSIGN_OR_RETURN(replica_check_, ReplicaCheck::Create(options));
  }
  if (stuck_steps == 0) return absl::OkStatus();
  StuckCheck::Options options;
  options.model = &plan_.model;
  options.steps = stuck_steps;
  options.gradients = GradientParts();
  options.device = options_.device;
  options.control = options_.comms.control;
  ASSIGN_OR_RETURN(stuck_check_, StuckCheck::Create(std::move(options)));
  return absl::OkStatus();
}

std::vector<GradientPart> EngineImpl::GradientParts() const {
  const std::vector<fsdp::BucketView> held =
      HeldGradients(plan_.units, *buckets_);
  std::vector<GradientPart> parts;
  for (const fsdp::Bucket& bucket : plan_.units.buckets) {
    const fsdp::BucketView& view = held[bucket.id];
    for (const fsdp::Segment& segment : fsdp::SegmentsIn(bucket, view.range)) {
      if (parameters_[segment.param].learning_rate_scale == 0) continue;
      GradientPart& part = parts.emplace_back();
      part.param = segment.param;
      const device::Tensor part_data = view.at(segment.bucket_offset);
      part.dtype = part_data.dtype;
      part.data = part_data.data;
      part.count = segment.elements;
    }
  }
  return parts;
}

bool EngineImpl::ComparesReplicas(int64_t step) const {
  return replica_check_ != nullptr &&
         (step % replica_check_steps_ == 0 || step == options_.job.steps());
}

absl::Status EngineImpl::CheckGuards(int64_t step) {
  device::Stream& compute = *StreamOf(schedule::StreamKind::kCompute);
  device::Stream& reduce = *StreamOf(schedule::StreamKind::kReduce);
  if (ComparesReplicas(step)) {
    RETURN_IF_ERROR(replica_check_->End(compute, reduce));
  }
  if (stuck_check_ == nullptr) return absl::OkStatus();
  const bool counts =
      scalars().learning_rate >= kLeastShareOfPeak * rates_.peak;
  return stuck_check_->End(step, counts, step == options_.job.steps(), compute,
                           reduce);
}

}  // namespace weft::exec

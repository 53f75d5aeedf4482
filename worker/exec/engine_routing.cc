// What routers chose: written for other jobs, or read from one.
#include <algorithm>
#include <memory>
#include <utility>

#include "absl/types/span.h"
#include "base/status_macros.h"
#include "worker/exec/engine_impl.h"

namespace weft::exec {

absl::Status EngineImpl::PrepareRouting() {
  const int rank = options_.binding.rank;
  if (!plan_.routing.empty()) {
    routing_log_ = std::make_unique<RoutingLog>(RoutingLayoutOf(plan_), rank,
                                                plan_.world.size);
  }
  if (!plan_.shape.replays_routing) return absl::OkStatus();
  RoutingReplayOptions replay;
  replay.folder = options_.job.replay_routing();
  replay.layout = RoutingLayoutOf(plan_);
  replay.steps = options_.job.steps();
  replay.rank = rank;
  replay.world = plan_.world.size;
  ASSIGN_OR_RETURN(routing_,
                   options_.device->AllocateHost(replay.layout.elements *
                                                 int64_t{sizeof(int32_t)}));
  ASSIGN_OR_RETURN(routing_replay_, RoutingReplay::Open(std::move(replay)));
  return absl::OkStatus();
}

absl::Status EngineImpl::ReadRouting(data::Split split, int64_t batch) {
  const absl::Span<int32_t> all(reinterpret_cast<int32_t*>(routing_->data()),
                                routing_->bytes() / sizeof(int32_t));
  if (split == data::Split::kTrain) {
    return routing_replay_->Read(/*step=*/batch + 1, all);
  }
  std::fill(all.begin(), all.end(), -1);  // see ops::RouterForwardArgs
  return absl::OkStatus();
}

absl::Status EngineImpl::WriteRouting(absl::string_view folder) {
  if (routing_log_ == nullptr || step_ == 0) {
    return absl::FailedPreconditionError(
        "there is no routing without output.routing and before a step");
  }
  const StepProgram& ran = is_tapped_ ? tapped_ : train_;
  return routing_log_->Write(step_, ran.lowered->taps(), folder);
}

absl::Status EngineImpl::FinishRouting() {
  return routing_log_ == nullptr ? absl::OkStatus() : routing_log_->Finish();
}

}  // namespace weft::exec

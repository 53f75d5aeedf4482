// What follows when gradients are not finite: the step runs again, with a look
// at what every op writes.
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "schedule/replay.h"
#include "schedule/verifier.h"
#include "worker/exec/engine_impl.h"
#include "worker/exec/host_pool.h"
#include "worker/exec/word_exchange.h"

namespace weft::exec {

absl::Status EngineImpl::Replay() {
  const std::string gate =
      absl::StrCat("the gradient norm is ", totals_.norm, " (loss ", MeanLoss(),
                   "); the weights are those before the step");
  const absl::StatusOr<std::string> first = FindFirstNonFinite();
  const std::string step = absl::StrCat("step ", step_);
  if (!first.ok()) {
    return absl::OutOfRangeError(absl::StrCat(
        step, ": ", gate,
        "; replaying the step failed: ", first.status().message()));
  }
  if (first->empty()) {
    return absl::OutOfRangeError(absl::StrCat(
        step, ": ", gate,
        "; but a replay of the step found every value, gradient and parameter "
        "finite, so the fault does not repeat: suspect the machine"));
  }
  return absl::OutOfRangeError(absl::StrCat(step, ", ", *first, "; ", gate));
}

// Every rank finds its own first; of all of them the first in launch order
// counts, of the lowest rank. Empty when there is none.
absl::StatusOr<std::string> EngineImpl::FindFirstNonFinite() {
  const schedule::Program program = schedule::ReplayOf(options_.train);
  RETURN_IF_ERROR(schedule::VerifyProgram(program, plan_.model, plan_.units));
  Bindings bindings = MakeBindings();
  bindings.check_finite = true;
  bindings.record_spans = false;
  ASSIGN_OR_RETURN(const std::unique_ptr<LoweredProgram> lowered,
                   LoweredProgram::Lower(program, bindings));
  ASSIGN_OR_RETURN(
      const std::unique_ptr<WordExchange> exchange,
      WordExchange::Create(*options_.device, *options_.comms.control,
                           Finding::kWords, "replay"));
  ASSIGN_OR_RETURN(std::optional<Finding> own, CheckWeights());
  mode_ = Mode::kReplay;
  RETURN_IF_ERROR(RunProgram(*lowered, data::Split::kTrain, step_ - 1));
  if (!own.has_value()) own = lowered->FirstNonFinite();
  Encode(own, exchange->own());
  RETURN_IF_ERROR(exchange->Run(*StreamOf(schedule::StreamKind::kReduce)));
  std::optional<Finding> first;
  int rank_of_first = 0;
  for (int rank = 0; rank < plan_.world.size; ++rank) {
    const std::optional<Finding> finding = Decode(exchange->of(rank));
    if (!finding.has_value()) continue;
    if (first.has_value() && first->op <= finding->op) continue;
    first = finding;
    rank_of_first = rank;
  }
  if (!first.has_value()) return std::string();
  return absl::StrCat(Describe(*first, plan_, program), " (rank ",
                      rank_of_first, ")");
}

absl::StatusOr<std::optional<Finding>> EngineImpl::CheckWeights() {
  std::deque<FiniteCheck> checks(1);
  FiniteCheck& check = checks.front();
  for (const fsdp::Bucket& bucket : plan_.units.buckets) {
    for (CheckedRange& range :
         PartsOf(Checked::kParameter, bucket, buckets_->weights(bucket.id),
                 parameters_)) {
      check.ranges.push_back(range);
    }
  }
  HostPool host(options_.device);
  RETURN_IF_ERROR(MakeRoom(host, checks));
  device::Stream& stream = *StreamOf(schedule::StreamKind::kCompute);
  stream.Launch(&RunFiniteCheck, &check);
  RETURN_IF_ERROR(stream.Synchronize());
  return FirstOf(check, Finding::kBeforeTheStep);
}

}  // namespace weft::exec

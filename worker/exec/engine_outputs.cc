// What a rank leaves behind: weights, gradients, taps, traces.
#include <sched.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/file/atomic_file.h"
#include "base/status_macros.h"
#include "schedule/trace.h"
#include "worker/exec/engine_impl.h"
#include "worker/exec/fragment_file.h"
#include "worker/exec/tap.h"

namespace weft::exec {
namespace {

// Cores of the host that this process may run on; 0: unknown.
int UsableCores() {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof(cores), &cores) != 0) return 0;
  return CPU_COUNT(&cores);
}

}  // namespace

absl::Status EngineImpl::WriteFragments(
    const std::vector<fsdp::BucketView>& held, std::optional<int64_t> step,
    absl::string_view folder) {
  FragmentFileArgs args;
  args.units = &plan_.units;
  args.world = plan_.world;
  args.rank = options_.binding.rank;
  args.parameters = parameters_;
  args.held = held;
  if (!step.has_value() && expert_biases_ != nullptr) {
    args.alike = expert_biases_->Tensors();
  }
  args.step = step;
  args.device = options_.device;
  args.stream = streams_[0].get();
  return WriteFragmentFile(args, folder);
}

absl::Status EngineImpl::WriteParameters(absl::string_view folder) {
  return WriteFragments(HeldWeights(plan_.units, *buckets_), std::nullopt,
                        folder);
}

absl::Status EngineImpl::WriteGradients(absl::string_view folder) {
  if (step_ == 0) {
    return absl::FailedPreconditionError(
        "there are no gradients before a step");
  }
  return WriteFragments(HeldGradients(plan_.units, *buckets_), step_, folder);
}

absl::Status EngineImpl::WriteTaps(absl::string_view folder) {
  if (!has_tapped_) {
    return absl::FailedPreconditionError(
        "there are no taps before the step of output.tap_step");
  }
  TapFileArgs args;
  args.values = plan_.taps;
  args.rank = options_.binding.rank;
  args.world = plan_.world.size;
  args.step = options_.job.output().tap_step();
  return WriteTapFile(tapped_.lowered->taps(), args, folder);
}

absl::Status EngineImpl::WriteTrace(const StepResult& result,
                                    absl::string_view path) {
  const schedule::Program& program =
      result.is_tapped ? *options_.tapped : options_.train;
  char host[256] = "";
  gethostname(host, sizeof(host) - 1);
  schedule::TraceFacts facts;
  facts.step = result.metrics.step();
  facts.step_seconds = result.metrics.step_seconds();
  facts.cores = UsableCores();
  facts.host = host;
  facts.peak_device_bytes = result.measured_peak_bytes;
  schedule::TraceRank rank;
  rank.rank = options_.binding.rank;
  rank.spans = result.spans;
  rank.rows.microbatches = program.microbatches;
  rank.rows.rows = result.received_rows;
  ASSIGN_OR_RETURN(const std::unique_ptr<AtomicFile> file,
                   AtomicFile::Create(std::string(path)));
  RETURN_IF_ERROR(
      file->Append(schedule::TraceJson(plan_, program, facts, {rank})));
  return file->Commit();
}

}  // namespace weft::exec

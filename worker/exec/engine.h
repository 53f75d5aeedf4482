// Engine: one rank of one job, from initial parameters to the last step.
#ifndef WEFT_WORKER_EXEC_ENGINE_H_
#define WEFT_WORKER_EXEC_ENGINE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/clock.h"
#include "data/sample_source.h"
#include "kernels/comm/communicator.h"
#include "kernels/device/device.h"
#include "schedule/overlap.h"
#include "schedule/program.h"
#include "weft/v1/job.pb.h"
#include "weft/v1/job_service.pb.h"
#include "worker/exec/initial_weights.h"

namespace weft::exec {

// The communicators of a rank, borrowed. Groups follow fsdp::World::Members.
// `gather_*` are used on the gather stream only, `reduce_*` and `control` on
// the reduce stream, `ep` on the ep stream.
struct Communicators {
  comm::Communicator* ep = nullptr;          // Axis::kEp
  comm::Communicator* gather_dp = nullptr;   // Axis::kDp
  comm::Communicator* gather_edp = nullptr;  // Axis::kEdp
  comm::Communicator* reduce_dp = nullptr;   // Axis::kDp
  comm::Communicator* reduce_edp = nullptr;  // Axis::kEdp
  comm::Communicator* control = nullptr;     // Axis::kDp
};

// What happens to memory whose content is dead.
enum class ReleasedMemory : uint8_t {
  kKeep,    // nothing
  kPoison,  // filled with NaN: a late read shows
  kReturn,  // pages handed back to the system: a release shows
};

// Told of an error.
using FailureFn = std::function<void(const absl::Status&)>;

// Pointers are borrowed and outlive the engine.
struct EngineOptions {
  v1::TrainingJob job;
  schedule::Binding binding;
  schedule::Program train;
  std::optional<schedule::Program> eval;
  std::optional<schedule::Program> tapped;  // when the job taps
  // The programs have passed schedule::VerifyProgram, as those that Compile or
  // FromProto return have: Create() need not prove them again.
  bool programs_are_proven = false;
  device::Device* device = nullptr;
  Communicators comms;
  data::SampleSource* samples = nullptr;
  // Where the main weights start; null: normal values from the job's seed. Need
  // not outlive Create.
  const InitialWeights* initial_weights = nullptr;
  Clock* clock = nullptr;
  // Called when the work of an op has failed, on its stream's thread, once the
  // device has failed with that error. Must make the collectives return that
  // other streams wait in: a failed device does not reach them, and the step
  // ends only when they do. Does not block. May be empty.
  FailureFn on_failure;
  ReleasedMemory released_memory = ReleasedMemory::kKeep;
  // Records a Span for every op of every step (needed for exposed times).
  bool record_spans = true;
  // Samples resident device bytes after every op that ends a lifetime, and
  // keeps the largest excess over the plan's live set; tests only (slow).
  bool check_live_set = false;
  // Samples the arena's resident bytes after the work of every op, before what
  // is dead then is handed back, and says the step's most in StepResult and as
  // peak_device_bytes (slow). Needs ReleasedMemory::kReturn.
  bool measure_memory = false;
};

// On the clock's monotonic nanoseconds.
using schedule::Span;

struct StepResult {
  // Loss, norm, rate and tokens are the job's; the rest is this rank's.
  v1::StepMetrics metrics;
  // Largest control word any rank passed to this step.
  int64_t control_word = 0;
  bool is_tapped = false;   // it ran the program with taps
  std::vector<Span> spans;  // by op of that program
  // Rows this rank's experts got: [layers of the model, microbatches].
  std::vector<int64_t> received_rows;
  // Most device bytes backed by memory at once; 0 unless measure_memory.
  int64_t measured_peak_bytes = 0;
};

// Drives the plan of one rank. Create allocates everything; steps allocate
// nothing. Not thread-safe: one thread calls it; Cancel-like stops come through
// the communicators' cancellation and Device::Fail.
class Engine {
 public:
  // INVALID_ARGUMENT when the programs do not fit the job; RESOURCE_EXHAUSTED
  // when memory does not suffice; the device's error soon after it has failed;
  // what `initial_weights` says.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(EngineOptions options);
  virtual ~Engine() = default;

  // Runs optimizer step `step` (from 1). `control_word` is max-reduced over
  // ranks, so that all learn of a wish to stop on the same step. Errors name
  // step, op, layer, microbatch.
  virtual absl::Status RunStep(int64_t step, int64_t control_word,
                               StepResult* result) = 0;

  // Validates on the first `batches` batches of the held-out samples. Requires
  // that so many are held out: `samples` says what else happens.
  virtual absl::StatusOr<v1::EvalMetrics> RunEval(int64_t batches) = 0;

  // Writes this rank's fragments of the main weights to
  // `<folder>/rank-<rank, 5 digits>.safetensors`. Tensor "<param>@<begin>"
  // holds elements [begin, begin+n) of the whole model's flattened parameter. A
  // fragment that several ranks hold is written by the lowest of them.
  virtual absl::Status WriteParameters(absl::string_view folder) = 0;

  // Writes this rank's fragments of the gradients of the latest step, as the
  // optimizer got them (the mean over ranks, not clipped), as WriteParameters
  // does the weights, but of frozen parameters, which have none; the file's
  // metadata says the `step`, too. A validation
  // leaves them as they are. FAILED_PRECONDITION before the first step.
  virtual absl::Status WriteGradients(absl::string_view folder) = 0;

  // Writes what this rank tapped in the step of output.tap_step to
  // `<folder>/rank-<rank, 5 digits>.safetensors`. Tensor "<value>@<microbatch>"
  // is [rows, columns], of the rows that there were. FAILED_PRECONDITION before
  // that step and when the job taps nothing.
  virtual absl::Status WriteTaps(absl::string_view folder) = 0;

  // Begins to write which experts the routers of this rank chose in the latest
  // step to `<folder>/step-<step>.rank-<rank>.safetensors` (see
  // routing_file.h), and returns when what it began in the step before is
  // written: errors are those of that file. FAILED_PRECONDITION before the
  // first step and when the job does not ask for it.
  virtual absl::Status WriteRouting(absl::string_view folder) = 0;
  // Waits for what WriteRouting() began.
  virtual absl::Status FinishRouting() = 0;

  // Writes the spans of a step as Chrome trace JSON (schedule/trace.h).
  virtual absl::Status WriteTrace(const StepResult& result,
                                  absl::string_view path) = 0;

  virtual uint64_t collective_hash() const = 0;
  virtual uint64_t assignment_hash() const = 0;
  virtual int64_t main_weight_bytes() const = 0;
  // Largest excess of resident bytes over the plan's live set seen so far; 0
  // unless check_live_set.
  virtual int64_t live_set_excess_bytes() const = 0;
};

}  // namespace weft::exec

#endif  // WEFT_WORKER_EXEC_ENGINE_H_

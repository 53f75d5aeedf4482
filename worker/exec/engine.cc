#include "worker/exec/engine.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/file/atomic_file.h"
#include "base/status_macros.h"
#include "schedule/trace.h"
#include "worker/exec/engine_impl.h"
#include "worker/exec/fragment_file.h"
#include "worker/exec/tap.h"

namespace weft::exec {
namespace {

double Seconds(int64_t nanos) { return static_cast<double>(nanos) * 1e-9; }

}  // namespace

EngineImpl::~EngineImpl() = default;

absl::Status EngineImpl::ReadBatches(data::Split split, int64_t batch) {
  const model::Shape& shape = plan_.shape;
  const int64_t length = shape.sequence + 1;
  int32_t* out = reinterpret_cast<int32_t*>(batches_->data());
  // A microbatch of the job is one of every rank, ranks ascending.
  const int64_t per_microbatch = shape.microbatch * shape.world;
  const int64_t per_batch = per_microbatch * shape.microbatches;
  for (int64_t m = 0; m < shape.microbatches; ++m) {
    for (int64_t i = 0; i < shape.microbatch; ++i) {
      const int64_t index = batch * per_batch + m * per_microbatch +
                            options_.binding.rank * shape.microbatch + i;
      RETURN_IF_ERROR(options_.samples->Read(
          split, index, absl::MakeSpan(out, static_cast<size_t>(length))));
      out += length;
    }
  }
  return absl::OkStatus();
}

absl::Status EngineImpl::Drain() {
  absl::Status first;
  for (const auto& stream : streams_) first.Update(stream->Synchronize());
  return first;
}

absl::Status EngineImpl::RunProgram(const LoweredProgram& program,
                                    data::Split split, int64_t batch) {
  RETURN_IF_ERROR(ReadBatches(split, batch));
  double* record = reinterpret_cast<double*>(control_->data());
  record[fsdp::ControlRecord::kTokens] =
      static_cast<double>(plan_.shape.tokens * plan_.shape.microbatches);
  std::fill(routed_rows_.begin(), routed_rows_.end(), 0);
  const absl::Status walked = Walk(program.entries());
  const absl::Status drained = Drain();
  RETURN_IF_ERROR(drained);  // the first error on the device
  RETURN_IF_ERROR(walked);
  if (options_.released_memory != ReleasedMemory::kReturn) {
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(options_.device->ReturnPages(arena_->data(), arena_->bytes(),
                                               *streams_[0]));
  return streams_[0]->Synchronize();
}

absl::Status EngineImpl::RunStep(int64_t step, int64_t control_word,
                                 StepResult* result) {
  step_ = step;
  mode_ = Mode::kTrain;
  gate_has_tripped_ = false;
  exchanged_bytes_ = 0;
  double* record = reinterpret_cast<double*>(control_->data());
  record[fsdp::ControlRecord::kWord] = static_cast<double>(control_word);
  const int64_t begin_ns = options_.clock->MonotonicNanos();
  if (first_begin_ns_ < 0) first_begin_ns_ = begin_ns;
  const bool taps =
      tapped_.lowered != nullptr && step == options_.job.output().tap_step();
  const StepProgram& program = taps ? tapped_ : train_;
  if (ComparesReplicas(step)) replica_check_->Begin();
  const absl::Status status =
      RunProgram(*program.lowered, data::Split::kTrain, step - 1);
  if (gate_has_tripped_) return Replay();
  if (!status.ok()) return Annotate(status, absl::StrCat("step ", step));
  has_tapped_ |= taps;
  result->is_tapped = taps;
  FillMetrics(program, begin_ns, options_.clock->MonotonicNanos(), result);
  return Annotate(CheckGuards(step), absl::StrCat("step ", step));
}

absl::Status EngineImpl::FinishControl(void* engine) {
  EngineImpl& self = *static_cast<EngineImpl*>(engine);
  const double* records =
      reinterpret_cast<const double*>(self.control_->data()) +
      fsdp::ControlRecord::Doubles(self.plan_.shape.microbatches);
  self.totals_ = fsdp::SumControl(records, self.plan_.world.size,
                                  self.plan_.shape.microbatches);
  return self.mode_ == Mode::kTrain ? self.FinishTrainControl()
                                    : absl::OkStatus();
}

// All ranks read the same records, so all fail, or none.
absl::Status EngineImpl::FinishTrainControl() {
  if (!std::isfinite(totals_.norm)) {
    gate_has_tripped_ = true;
    return absl::OutOfRangeError("the gradient norm is not finite");
  }
  scalars_ = fsdp::ScalarsOf(optimizer_, fsdp::LearningRate(rates_, step_),
                             step_, totals_.norm);
  return absl::OkStatus();
}

void EngineImpl::FillMetrics(const StepProgram& ran, int64_t begin_ns,
                             int64_t end_ns, StepResult* result) {
  result->control_word = totals_.word;
  v1::StepMetrics& metrics = result->metrics;
  metrics.set_step(step_);
  metrics.set_loss(totals_.mean_loss());
  metrics.set_grad_norm(totals_.norm);
  metrics.set_learning_rate(scalars_.learning_rate);
  metrics.set_tokens(static_cast<int64_t>(totals_.tokens));
  metrics.set_step_seconds(Seconds(end_ns - begin_ns));
  metrics.set_elapsed_seconds(Seconds(end_ns - first_begin_ns_));
  metrics.set_ep_wire_bytes(exchanged_bytes_);
  result->received_rows = received_rows_;
  result->measured_peak_bytes =
      options_.measure_memory
          ? resident_bytes_ + ran.lowered->measured_peak_bytes()
          : 0;
  metrics.set_peak_device_bytes(options_.measure_memory
                                    ? result->measured_peak_bytes
                                    : resident_bytes_ +
                                          ran.lowered->peak_live_bytes());
  metrics.set_expert_imbalance(ExpertImbalance());
  result->spans.clear();
  if (!options_.record_spans) return;
  const absl::Span<const Span> spans = ran.lowered->spans();
  result->spans.insert(result->spans.end(), spans.begin(), spans.end());
  const schedule::OverlapTimes times =
      schedule::MeasureOverlap(ran.stream_ops, spans);
  metrics.set_ep_seconds(Seconds(times.ep_ns));
  metrics.set_ep_exposed_seconds(Seconds(times.ep_exposed_ns));
  metrics.set_fsdp_seconds(Seconds(times.fsdp_ns));
  metrics.set_fsdp_exposed_seconds(Seconds(times.fsdp_exposed_ns));
}

double EngineImpl::ExpertImbalance() const {
  const int64_t experts = plan_.shape.experts;
  double worst = 0;
  for (size_t layer = 0; experts > 0 && layer < plan_.model.layers.size();
       ++layer) {
    const int64_t* rows = routed_rows_.data() + layer * experts;
    int64_t most = 0;
    int64_t sum = 0;
    for (int64_t e = 0; e < experts; ++e) {
      most = std::max(most, rows[e]);
      sum += rows[e];
    }
    if (sum == 0) continue;
    worst = std::max(
        worst, static_cast<double>(most * experts) / static_cast<double>(sum));
  }
  return worst;
}

absl::StatusOr<v1::EvalMetrics> EngineImpl::RunEval(int64_t batches) {
  if (eval_ == nullptr) {
    return absl::FailedPreconditionError("the job has no validation program");
  }
  mode_ = Mode::kEval;
  double loss_sum = 0;
  double tokens = 0;
  for (int64_t batch = 0; batch < batches; ++batch) {
    const absl::Status status =
        RunProgram(*eval_, data::Split::kValidation, batch);
    if (!status.ok()) {
      return Annotate(status, absl::StrCat("validation after step ", step_,
                                           ", batch ", batch));
    }
    loss_sum += totals_.loss_sum;
    tokens += totals_.tokens;
  }
  v1::EvalMetrics metrics;
  metrics.set_step(step_);
  metrics.set_loss(tokens > 0 ? loss_sum / tokens : 0);
  metrics.set_tokens(static_cast<int64_t>(tokens));
  return metrics;
}

absl::Status EngineImpl::WriteFragments(
    const std::vector<fsdp::BucketView>& held, std::optional<int64_t> step,
    absl::string_view folder) {
  FragmentFileArgs args;
  args.units = &plan_.units;
  args.world = plan_.world;
  args.rank = options_.binding.rank;
  args.parameters = parameters_;
  args.held = held;
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
  facts.cores = static_cast<int>(std::thread::hardware_concurrency());
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

uint64_t EngineImpl::collective_hash() const {
  return schedule::CollectiveHash(options_.train, plan_.model, plan_.units);
}

int64_t EngineImpl::live_set_excess_bytes() const {
  int64_t excess = 0;
  for (const LoweredProgram* program :
       {train_.lowered.get(), tapped_.lowered.get(), eval_.get()}) {
    if (program == nullptr) continue;
    excess = std::max(excess, program->live_set_excess_bytes());
  }
  return excess;
}

}  // namespace weft::exec

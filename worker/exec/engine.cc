#include "worker/exec/engine.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/ops/cross_entropy/cross_entropy.h"
#include "worker/exec/engine_impl.h"

namespace weft::exec {
namespace {

double Seconds(int64_t nanos) { return static_cast<double>(nanos) * 1e-9; }

}  // namespace

EngineImpl::~EngineImpl() = default;

absl::Status EngineImpl::ReadBatches(data::Split split, int64_t batch) {
  const model::Shape& shape = plan_.shape;
  int32_t* out = reinterpret_cast<int32_t*>(batches_->data());
  double* record = reinterpret_cast<double*>(control_->data());
  record[fsdp::ControlRecord::kTokens] =
      static_cast<double>(shape.step_tokens());
  // A microbatch of the job is one of every rank, ranks ascending.
  int64_t index = batch * (shape.step_tokens() / shape.sequence) * shape.world;
  for (int m = 0; m < shape.microbatches; ++m) {
    const int64_t sequences = shape.sequences_of(m);
    record[control_layout_.loss_tokens(m)] = 0;
    record[control_layout_.valid_tokens(m)] = 0;
    for (int k = 0; k < shape.mtp_depths(); ++k) {
      record[control_layout_.depth_tokens(k, m)] = 0;
    }
    for (int64_t i = 0; i < sequences; ++i) {
      RETURN_IF_ERROR(ReadSample(
          split, index + options_.binding.rank * sequences + i, out));
      CountTokens(out, m, record);
      out += shape.sample_words();
    }
    index += sequences * shape.world;
  }
  if (shape.weighs_losses()) FillLossTokens();
  return routing_replay_ == nullptr ? absl::OkStatus()
                                    : ReadRouting(split, batch);
}

absl::Status EngineImpl::ReadSample(data::Split split, int64_t index,
                                    int32_t* out) {
  const int64_t sequence = plan_.shape.sequence;
  const int depths = plan_.shape.mtp_depths();
  int32_t* const tail = out + plan_.shape.tail_at();
  std::fill_n(tail, depths, 0);
  std::fill_n(tail + depths, depths, ops::kIgnoredLabel);
  const auto tokens = absl::MakeSpan(out, static_cast<size_t>(sequence + 1));
  RETURN_IF_ERROR(options_.samples->Read(split, index, tokens));
  if (plan_.shape.loss_mask) {
    RETURN_IF_ERROR(
        options_.samples->ReadMask(split, index, absl::MakeSpan(mask_)));
    int32_t* labels = out + sequence + 1;
    for (int64_t i = 0; i < sequence; ++i) {
      labels[i] = mask_[i + 1] != 0 ? tokens[i + 1] : ops::kIgnoredLabel;
    }
  }
  if (!plan_.shape.padding_mask) return absl::OkStatus();
  RETURN_IF_ERROR(
      options_.samples->ReadPadding(split, index, absl::MakeSpan(mask_)));
  int32_t* valid = out + plan_.shape.sample_words() - sequence;
  for (int64_t i = 0; i < sequence; ++i) valid[i] = mask_[i] == 0;
  return absl::OkStatus();
}

void EngineImpl::CountTokens(const int32_t* sample, int microbatch,
                             double* record) const {
  const model::Shape& shape = plan_.shape;
  const int32_t* labels = shape.labels_of(sample);
  // Of those of the sequence from `first` on.
  const auto count = [&](int64_t first) {
    const int64_t all = shape.sequence - first;
    if (!shape.loss_mask) return all;
    return all - std::count(labels + first, labels + shape.sequence,
                            ops::kIgnoredLabel);
  };
  record[control_layout_.loss_tokens(microbatch)] += count(0);
  for (int k = 0; k < shape.mtp_depths(); ++k) {
    record[control_layout_.depth_tokens(k, microbatch)] += count(k + 1);
  }
  const int32_t* end = sample + shape.sample_words();
  record[control_layout_.valid_tokens(microbatch)] +=
      shape.padding_mask ? std::count(end - shape.sequence, end, 1)
                         : shape.sequence;
}

void EngineImpl::FillLossTokens() {
  const double* record = reinterpret_cast<const double*>(control_->data());
  double* loss_tokens = reinterpret_cast<double*>(loss_tokens_->data());
  const model::Shape& shape = plan_.shape;
  double step = 0;
  for (int m = 0; m < shape.microbatches; ++m) {
    step += record[control_layout_.loss_tokens(m)];
  }
  for (int m = 0; m < shape.microbatches; ++m) {
    double* numbers = loss_tokens + m * shape.loss_token_numbers();
    *numbers++ = record[control_layout_.loss_tokens(m)];
    *numbers++ = step;
    *numbers++ = record[control_layout_.valid_tokens(m)];
    for (int k = 0; k < shape.mtp_depths(); ++k) {
      *numbers++ = record[control_layout_.depth_tokens(k, m)];
    }
  }
}

absl::Status EngineImpl::Drain() {
  absl::Status first;
  for (const auto& stream : streams_) first.Update(stream->Synchronize());
  return first;
}

absl::Status EngineImpl::RunProgram(const LoweredProgram& program,
                                    data::Split split, int64_t batch) {
  RETURN_IF_ERROR(ReadBatches(split, batch));
  std::fill(routed_rows_.begin(), routed_rows_.end(), 0);
  control_status_ = absl::OkStatus();
  scalars().skip = 1;  // until the control op says otherwise
  const int64_t begin_ns = options_.clock->MonotonicNanos();
  const int64_t waited_ns = options_.device->counters().host_wait_ns;
  const absl::Status walked = Walk(program.entries());
  launch_ns_ = options_.clock->MonotonicNanos() - begin_ns -
               (options_.device->counters().host_wait_ns - waited_ns);
  const absl::Status drained = Drain();
  RETURN_IF_ERROR(drained);  // the first error on the device
  RETURN_IF_ERROR(walked);
  RETURN_IF_ERROR(control_status_);
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
  if (exchange_meter_ != nullptr && step > 1 &&
      options_.job.bench().exchanges() == v1::EXCHANGES_ALONE) {
    return RunExchangesAlone(begin_ns, result);
  }
  SetExchangeMode();
  const device::DeviceCounters before = options_.device->counters();
  const bool taps =
      tapped_.lowered != nullptr && step == options_.job.output().tap_step();
  const StepProgram& program = taps ? tapped_ : train_;
  if (ComparesReplicas(step)) replica_check_->Begin();
  const absl::Status status =
      RunProgram(*program.lowered, data::Split::kTrain, step - 1);
  if (gate_has_tripped_) return Replay();
  if (!status.ok()) return Annotate(status, absl::StrCat("step ", step));
  has_tapped_ |= taps;
  is_tapped_ = taps;
  result->is_tapped = taps;
  FillMetrics(program, begin_ns, options_.clock->MonotonicNanos(), result);
  FillCounters(before, result->metrics);
  FillMemory(result->metrics);
  return Annotate(CheckGuards(step), absl::StrCat("step ", step));
}

void EngineImpl::SetExchangeMode() {
  if (exchange_meter_ == nullptr) return;
  const bool alone = options_.job.bench().exchanges() == v1::EXCHANGES_ALONE;
  using Mode = ExchangeMeter::Mode;
  exchange_meter_->set_mode(alone       ? Mode::kRecord
                            : step_ > 1 ? Mode::kLeaveOut
                                        : Mode::kPass);
}

absl::Status EngineImpl::RunExchangesAlone(int64_t begin_ns,
                                           StepResult* result) {
  device::Stream& stream = *StreamOf(schedule::StreamKind::kEp);
  const auto replay = [](void* meter, device::Stream& on) {
    return static_cast<ExchangeMeter*>(meter)->Replay(on);
  };
  const int64_t sent_before = exchange_meter_->wire_bytes();
  stream.Launch(replay, exchange_meter_.get());
  RETURN_IF_ERROR(stream.Synchronize());
  const int64_t end_ns = options_.clock->MonotonicNanos();
  v1::StepMetrics& metrics = result->metrics;
  metrics.set_step(step_);
  metrics.set_tokens(static_cast<int64_t>(totals_.tokens));
  metrics.set_step_seconds(Seconds(end_ns - begin_ns));
  metrics.set_elapsed_seconds(Seconds(end_ns - first_begin_ns_));
  metrics.set_ep_wire_bytes(exchange_meter_->wire_bytes() - sent_before);
  result->control_word = totals_.word;
  result->spans.clear();
  return absl::OkStatus();
}

void EngineImpl::FinishControl(void* engine, const absl::Status& counts) {
  EngineImpl& self = *static_cast<EngineImpl*>(engine);
  const double* records =
      reinterpret_cast<const double*>(self.control_->data()) +
      self.control_layout_.doubles();
  fsdp::SumControl(records, self.plan_.world.size, self.control_layout_,
                   &self.totals_);
  self.control_status_ = counts;
  if (!counts.ok() || self.mode_ != Mode::kTrain) return;
  self.control_status_ = self.FinishTrainControl();
}

// All ranks read the same records, so all fail, or none.
absl::Status EngineImpl::FinishTrainControl() {
  if (totals_.loss_tokens == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "data.loss_mask_prefix=", options_.job.data().loss_mask_prefix(),
        " counts none of the ", static_cast<int64_t>(totals_.tokens),
        " tokens of the step: there is nothing to minimise; a mask is 1 where "
        "a token counts as a label"));
  }
  if (!std::isfinite(totals_.norm)) {
    gate_has_tripped_ = true;
    return absl::OutOfRangeError("the gradient norm is not finite");
  }
  if (expert_biases_ != nullptr) {
    expert_biases_->Update(totals_.expert_counts);
  }
  scalars() = fsdp::ScalarsOf(optimizer_, fsdp::LearningRate(rates_, step_),
                              step_, totals_.norm);
  return absl::OkStatus();
}

// Means over microbatches are those over the step where all microbatches count
// equally many tokens.
double EngineImpl::MeanLoss() const {
  const model::Shape& shape = plan_.shape;
  const bool alike = shape.uneven.empty() && !shape.loss_mask;
  return shape.token_loss || alike ? totals_.token_loss()
                                   : totals_.microbatch_loss;
}

// What router losses weigh, see ops::LossWeights.
double EngineImpl::Objective() const {
  const model::Shape& shape = plan_.shape;
  const double of_step =
      shape.loss_mask ? totals_.tokens / std::max(totals_.loss_tokens, 1.0) : 1;
  double objective = MeanLoss() + DepthObjective();
  for (int m = 0; m < shape.microbatches; ++m) {
    const fsdp::RouterShare& share = totals_.router_shares[m];
    const double tokens = static_cast<double>(shape.sequence) *
                          shape.sequences_of(m) * shape.world;
    const double weight =
        shape.token_loss ? of_step * (share.valid_tokens / tokens) : 1;
    objective += weight * share.objective;
  }
  return objective;
}

double EngineImpl::DepthObjective() const {
  const model::Shape& shape = plan_.shape;
  if (shape.mtp_depths() == 0) return 0;
  return shape.mtp_loss_factor / shape.mtp_depths() *
         (shape.token_loss ? totals_.depth_token_loss
                           : totals_.depth_loss_sum());
}

void EngineImpl::FillRouterLosses(v1::StepMetrics& metrics) const {
  metrics.clear_router_losses();
  for (size_t i = 0; i < totals_.router_losses.size(); ++i) {
    const model::RouterLossDecl& decl = plan_.model.router_losses[i];
    v1::RouterLoss& loss = *metrics.add_router_losses();
    loss.set_layer(decl.layer - 1);  // the embedding is no decoder layer
    loss.set_name(model::Name(decl.loss));
    loss.set_value(totals_.router_losses[i]);
  }
  for (int k = 0; k < plan_.shape.mtp_depths(); ++k) {
    v1::RouterLoss& loss = *metrics.add_router_losses();
    loss.set_layer(static_cast<int32_t>(plan_.shape.layers.size()) + k);
    loss.set_name("mtp");
    loss.set_value(totals_.depth_losses[k]);
  }
}

void EngineImpl::FillMetrics(const StepProgram& ran, int64_t begin_ns,
                             int64_t end_ns, StepResult* result) {
  result->control_word = totals_.word;
  v1::StepMetrics& metrics = result->metrics;
  metrics.set_step(step_);
  metrics.set_loss(MeanLoss());
  metrics.set_objective(Objective());
  metrics.set_loss_tokens(static_cast<int64_t>(totals_.loss_tokens));
  FillRouterLosses(metrics);
  metrics.set_grad_norm(totals_.norm);
  metrics.set_learning_rate(scalars().learning_rate);
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
  FillImbalances(metrics);
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
  metrics.set_gather_seconds(Seconds(times.gather_ns));
  metrics.set_gather_exposed_seconds(Seconds(times.gather_exposed_ns));
  metrics.clear_streams();
  for (int s = 0; s < schedule::kNumStreams; ++s) {
    v1::StreamTime& stream = *metrics.add_streams();
    stream.set_stream(schedule::Name(static_cast<schedule::StreamKind>(s)));
    stream.set_busy_seconds(Seconds(times.busy_ns[s]));
  }
}

void EngineImpl::FillCounters(const device::DeviceCounters& before,
                              v1::StepMetrics& metrics) const {
  const device::DeviceCounters after = options_.device->counters();
  metrics.set_launch_seconds(Seconds(launch_ns_));
  // The streams are drained once each at the end, which is no wait in a step.
  metrics.set_host_waits(after.host_waits - before.host_waits -
                         schedule::kNumStreams);
  metrics.set_allocations(after.allocations - before.allocations);
}

void EngineImpl::FillMemory(v1::StepMetrics& metrics) const {
  metrics.clear_memory();
  const auto add = [&](const char* category, int64_t bytes) {
    v1::MemoryUse& use = *metrics.add_memory();
    use.set_category(category);
    use.set_bytes(bytes);
  };
  const auto held = [&](device::MemoryCategory category) {
    return options_.device->bytes_in_use(category);
  };
  using device::MemoryCategory;
  add("parameters", held(MemoryCategory::kParameters));
  add("gradients", held(MemoryCategory::kGradients));
  add("optimizer", held(MemoryCategory::kOptimizer));
  add("activations", held(MemoryCategory::kArena) - gathered_bytes_);
  add("gathered", gathered_bytes_);
  add("workspace", workspace_bytes_);
  add("staging", held(MemoryCategory::kStaging) - workspace_bytes_);
}

double EngineImpl::ImbalanceOf(size_t layer) const {
  const int64_t experts = plan_.shape.experts;
  const int64_t* rows = routed_rows_.data() + layer * experts;
  int64_t most = 0;
  int64_t sum = 0;
  for (int64_t e = 0; e < experts; ++e) {
    most = std::max(most, rows[e]);
    sum += rows[e];
  }
  if (sum == 0) return 0;
  return static_cast<double>(most * experts) / static_cast<double>(sum);
}

void EngineImpl::FillImbalances(v1::StepMetrics& metrics) const {
  metrics.clear_layer_imbalances();
  metrics.clear_expert_imbalance();
  for (size_t layer = 0; layer < plan_.model.layers.size(); ++layer) {
    if (!plan_.model.layers[layer].moe) continue;
    const double imbalance = ImbalanceOf(layer);
    metrics.add_layer_imbalances(imbalance);
    metrics.set_expert_imbalance(
        std::max(metrics.expert_imbalance(), imbalance));
  }
}

absl::StatusOr<v1::EvalMetrics> EngineImpl::RunEval(int64_t batches) {
  if (eval_ == nullptr) {
    return absl::FailedPreconditionError("the job has no validation program");
  }
  mode_ = Mode::kEval;
  double loss_sum = 0;
  double loss_tokens = 0;
  double tokens = 0;
  for (int64_t batch = 0; batch < batches; ++batch) {
    const absl::Status status =
        RunProgram(*eval_, data::Split::kValidation, batch);
    if (!status.ok()) {
      return Annotate(status, absl::StrCat("validation after step ", step_,
                                           ", batch ", batch));
    }
    loss_sum += totals_.loss_sum;
    loss_tokens += totals_.loss_tokens;
    tokens += totals_.tokens;
  }
  v1::EvalMetrics metrics;
  metrics.set_step(step_);
  metrics.set_loss(loss_tokens > 0 ? loss_sum / loss_tokens : 0);
  metrics.set_tokens(static_cast<int64_t>(tokens));
  return metrics;
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

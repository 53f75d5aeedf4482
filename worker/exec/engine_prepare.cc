// What an engine does once, before its first step: checks, memory, streams,
// initial weights, lowering.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "fsdp/runtime/initialize.h"
#include "kernels/ops/elementwise/elementwise.h"
#include "model/decoder.h"
#include "schedule/memory_plan.h"
#include "schedule/verifier.h"
#include "worker/exec/engine_impl.h"
#include "worker/exec/load_weights.h"
#include "worker/layers/rotary_tables.h"
#include "worker/layers/scratch.h"

namespace weft::exec {
namespace {

using device::MemoryCategory;
using schedule::Program;

constexpr int64_t kFloat = sizeof(float);

absl::Status RunCopy(void* arg, device::Stream& stream) {
  ops::Copy(*static_cast<const ops::CopyArgs*>(arg), stream);
  return absl::OkStatus();
}

absl::Status RunInitialize(void* arg, device::Stream& stream) {
  fsdp::InitializeWeights(*static_cast<const fsdp::InitializeArgs*>(arg),
                          stream);
  return absl::OkStatus();
}

absl::Status RunRoundWeights(void* arg, device::Stream& stream) {
  const EngineImpl& engine = *static_cast<const EngineImpl*>(arg);
  engine.RoundAllWeights(stream);
  return absl::OkStatus();
}

std::vector<fsdp::Residence> ResidenceOf(const schedule::Plan& plan,
                                         fsdp::Strategy strategy) {
  std::vector<fsdp::Residence> residence;
  for (const fsdp::Bucket& bucket : plan.units.buckets) {
    fsdp::Residence r;
    r.weights = schedule::WeightsResident(strategy, bucket);
    r.gradients = schedule::GradientsResident(strategy);
    r.optimizer = strategy == fsdp::Strategy::kNoShard;
    residence.push_back(r);
  }
  return residence;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(EngineOptions options) {
  auto engine = std::make_unique<EngineImpl>(std::move(options));
  RETURN_IF_ERROR(engine->Prepare());
  return engine;
}

absl::Status EngineImpl::Prepare() {
  plan_ = schedule::Declare(options_.job);
  RETURN_IF_ERROR(CheckOptions());
  if (options_.job.bench().exchanges() == v1::EXCHANGES_LEFT_OUT) {
    // What the first step exchanged is what later steps compute on.
    options_.released_memory = ReleasedMemory::kKeep;
    options_.measure_memory = false;
  }
  for (int m = 0; m < plan_.shape.microbatches; ++m) {
    const auto [it, added] =
        shapes_.insert({plan_.shape.sequences_of(m), plan_.shape.Of(m)});
    if (!added) continue;
    it->second.uneven.clear();
    RETURN_IF_ERROR(
        layers::CheckScratch(it->second, model::DeclareDecoder(it->second)));
    it->second.uneven = plan_.shape.uneven;
  }
  optimizer_ = fsdp::OptimizerSettingsOf(options_.job.optimizer());
  rates_ = fsdp::LearningRateOf(options_.job.optimizer(), options_.job.steps());
  DescribeParameters();
  RETURN_IF_ERROR(AllocateMemory());
  RETURN_IF_ERROR(ReserveCommunicators());
  MeterExchanges();
  RETURN_IF_ERROR(CreateStreams());
  RETURN_IF_ERROR(InitializeConstants());
  RETURN_IF_ERROR(InitializeWeights());
  options_.initial_weights = nullptr;  // gone after Create
  RETURN_IF_ERROR(PrepareGuards());
  RETURN_IF_ERROR(PrepareRouting());
  return LowerPrograms();
}

absl::Status EngineImpl::CheckOptions() const {
  const fsdp::World& world = options_.binding.world;
  if (world.size != plan_.world.size || world.ep != plan_.world.ep ||
      options_.binding.rank < 0 || options_.binding.rank >= world.size) {
    return absl::InvalidArgumentError(absl::StrCat(
        "rank ", options_.binding.rank, " of a world of ", world.size,
        " with ep ", world.ep, " does not fit the job's world of ",
        plan_.world.size, " with ep ", plan_.world.ep));
  }
  if (options_.measure_memory &&
      options_.released_memory != ReleasedMemory::kReturn) {
    return absl::InvalidArgumentError(
        "measuring memory needs released memory to be returned");
  }
  RETURN_IF_ERROR(CheckPrograms());
  const Communicators& comms = options_.comms;
  using fsdp::Axis;
  RETURN_IF_ERROR(CheckCommunicator(comms.ep, Axis::kEp, "ep"));
  RETURN_IF_ERROR(CheckCommunicator(comms.gather_dp, Axis::kDp, "gather.dp"));
  RETURN_IF_ERROR(
      CheckCommunicator(comms.gather_edp, Axis::kEdp, "gather.edp"));
  RETURN_IF_ERROR(CheckCommunicator(comms.reduce_dp, Axis::kDp, "reduce.dp"));
  RETURN_IF_ERROR(
      CheckCommunicator(comms.reduce_edp, Axis::kEdp, "reduce.edp"));
  return CheckCommunicator(comms.control, Axis::kDp, "control");
}

absl::Status EngineImpl::CheckPrograms() const {
  using schedule::ProgramKind;
  RETURN_IF_ERROR(CheckProgram(options_.train, ProgramKind::kTrain, "train",
                               plan_.routing));
  if (options_.eval.has_value()) {
    RETURN_IF_ERROR(CheckProgram(*options_.eval, ProgramKind::kEval, "eval"));
  }
  if (options_.tapped.has_value() == plan_.taps.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(options_.tapped.has_value() ? "a" : "no",
                     " program with taps came for a job that taps ",
                     plan_.taps.size(), " values"));
  }
  if (!options_.tapped.has_value()) return absl::OkStatus();
  RETURN_IF_ERROR(CheckProgram(*options_.tapped, ProgramKind::kTrain, "tapped",
                               schedule::ValuesOfTapStep(plan_)));
  const auto hash = [&](const Program& program) {
    return schedule::CollectiveHash(program, plan_.model, plan_.units);
  };
  if (hash(*options_.tapped) == hash(options_.train)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "tapped: its collectives differ from those of the training program");
}

// Lowering relies on the proofs: it reads by the indices of a program.
absl::Status EngineImpl::CheckProgram(const Program& program,
                                      schedule::ProgramKind kind,
                                      absl::string_view name,
                                      absl::Span<const int> taps) const {
  if (program.kind != kind || program.strategy != plan_.strategy ||
      program.microbatches != plan_.shape.microbatches) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, ": a program of kind ", static_cast<int>(program.kind), " with ",
        program.microbatches, " microbatches and ",
        fsdp::Name(program.strategy), ", the job has ",
        plan_.shape.microbatches, " and ", fsdp::Name(plan_.strategy)));
  }
  absl::Status sound;
  if (!options_.programs_are_proven) {
    sound = schedule::VerifyProgram(program, plan_.model, plan_.units);
  }
  if (sound.ok()) sound = schedule::VerifyTaps(program, taps);
  if (sound.ok()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, ": ", sound.message()));
}

absl::Status EngineImpl::CheckCommunicator(const comm::Communicator* comm,
                                           fsdp::Axis axis,
                                           absl::string_view name) const {
  if (comm == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("no communicator ", name));
  }
  const int size = plan_.world.GroupSize(axis);
  const int index = plan_.world.IndexOf(axis, options_.binding.rank);
  if (comm->size() == size && comm->rank() == index) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "communicator ", name, " is for position ", comm->rank(), " of ",
      comm->size(), ", but the job has position ", index, " of ", size));
}

absl::Status EngineImpl::ReserveCommunicators() {
  int64_t bucket_bytes = 0;
  for (const fsdp::Bucket& bucket : plan_.units.buckets) {
    bucket_bytes = std::max(
        {bucket_bytes, bucket.weight_bytes(), bucket.gradient_bytes()});
  }
  const model::Shape& shape = plan_.shape;
  int64_t exchange_bytes = 0;
  if (shape.experts > 0) {
    const int64_t row_bytes =
        std::max(shape.hidden * SizeOf(shape.compute_dtype), kFloat);
    exchange_bytes =
        std::max(shape.sent_rows(), shape.max_received_rows()) * row_bytes;
    if (shape.gathers_tokens()) {
      exchange_bytes =
          std::max({exchange_bytes, shape.group_tokens() * row_bytes,
                    shape.ep * shape.slots() * kFloat});
    }
    exchange_bytes = std::max(
        exchange_bytes, shape.ep * shape.experts * int64_t{sizeof(int32_t)});
  }
  const Communicators& comms = options_.comms;
  RETURN_IF_ERROR(comms.ep->Reserve(exchange_bytes));
  RETURN_IF_ERROR(comms.reduce_dp->Reserve(shape.balance_columns() * kFloat));
  for (comm::Communicator* comm :
       {comms.gather_dp, comms.gather_edp, comms.reduce_dp, comms.reduce_edp}) {
    RETURN_IF_ERROR(comm->Reserve(bucket_bytes));
  }
  RETURN_IF_ERROR(comms.control->Reserve(
      plan_.world.size * int64_t{sizeof(double)} * control_layout_.doubles()));
  // What is sent lies in the arena or with the buckets, but for the records of
  // the control collective.
  std::vector<const device::Buffer*> sent = buckets_->SharedBuffers();
  sent.push_back(arena_.get());
  for (comm::Communicator* comm : {comms.ep, comms.gather_dp, comms.gather_edp,
                                   comms.reduce_dp, comms.reduce_edp}) {
    RETURN_IF_ERROR(comm->RegisterMemory(sent));
  }
  return absl::OkStatus();
}

void EngineImpl::MeterExchanges() {
  const v1::Exchanges exchanges = options_.job.bench().exchanges();
  if (exchanges != v1::EXCHANGES_LEFT_OUT && exchanges != v1::EXCHANGES_ALONE) {
    return;
  }
  exchange_meter_ = std::make_unique<ExchangeMeter>(options_.comms.ep);
  options_.comms.ep = exchange_meter_.get();
}

void EngineImpl::DescribeParameters() {
  const int ep_rank =
      plan_.world.IndexOf(fsdp::Axis::kEp, options_.binding.rank);
  for (const model::ParamDecl& decl : plan_.model.params) {
    fsdp::Parameter parameter;
    parameter.name = decl.name;
    if (decl.expert) parameter.global_begin = ep_rank * decl.local_elements();
    parameter.init_std = decl.init_std;
    parameter.init_uniform = decl.init_uniform;
    parameter.init_constant = decl.init_constant;
    if (decl.init_zero_row >= 0) {
      const int64_t row = decl.local_elements() / decl.local_shape[0];
      parameter.init_zeros = {decl.init_zero_row * row,
                              (decl.init_zero_row + 1) * row};
    }
    parameter.weight_decay = decl.weight_decay;
    parameter.learning_rate_scale = decl.learning_rate_scale;
    parameters_.push_back(std::move(parameter));
  }
}

absl::Status EngineImpl::AllocateMemory() {
  device::Device& device = *options_.device;
  const model::Shape& shape = plan_.shape;
  fsdp::ResidentBuckets::Options resident;
  resident.device = &device;
  resident.units = &plan_.units;
  resident.world = plan_.world;
  resident.rank = options_.binding.rank;
  resident.residence = ResidenceOf(plan_, options_.train.strategy);
  resident.moments = plan_.moments;
  ASSIGN_OR_RETURN(buckets_, fsdp::ResidentBuckets::Create(resident));
  int64_t arena = options_.train.arena_bytes;
  int64_t host_arena = options_.train.host_arena_bytes;
  for (const auto* other : {&options_.eval, &options_.tapped}) {
    if (!other->has_value()) continue;
    arena = std::max(arena, (*other)->arena_bytes);
    host_arena = std::max(host_arena, (*other)->host_arena_bytes);
  }
  ASSIGN_OR_RETURN(arena_, device.Allocate(arena, MemoryCategory::kArena));
  gathered_bytes_ = schedule::GatheredAtPeak(options_.train);
  ASSIGN_OR_RETURN(host_arena_, device.AllocateHost(host_arena));
  ASSIGN_OR_RETURN(tables_,
                   device.Allocate(shape.rotary_table_elements() * kFloat,
                                   MemoryCategory::kStaging));
  ASSIGN_OR_RETURN(
      batches_,
      device.AllocateHost(shape.step_tokens() / shape.sequence *
                          shape.sample_words() * int64_t{sizeof(int32_t)}));
  if (shape.weighs_losses()) {
    ASSIGN_OR_RETURN(
        loss_tokens_,
        device.AllocateHost(shape.microbatches * shape.loss_token_numbers() *
                            int64_t{sizeof(double)}));
  }
  if (shape.has_masks()) mask_.resize(shape.sequence + 1);
  control_layout_.microbatches = shape.microbatches;
  control_layout_.router_losses = plan_.model.router_losses.size();
  for (const model::ExpertBiasDecl& bias : plan_.model.expert_biases) {
    control_layout_.expert_counts += bias.experts;
  }
  control_layout_.depths = shape.mtp_depths();
  const int64_t doubles = control_layout_.doubles();
  ASSIGN_OR_RETURN(control_,
                   device.AllocateHost((plan_.world.size + 1) * doubles *
                                       int64_t{sizeof(double)}));
  constexpr int64_t kScalarBytes = schedule::kOptimizerScalarBytes;
  static_assert(sizeof(fsdp::OptimizerScalars) == kScalarBytes);
  ASSIGN_OR_RETURN(host_scalars_, device.AllocateHost(kScalarBytes));
  ASSIGN_OR_RETURN(scalars_,
                   device.Allocate(kScalarBytes, MemoryCategory::kStaging));
  scalars() = fsdp::OptimizerScalars();
  routed_rows_.assign(plan_.model.layers.size() * shape.experts, 0);
  received_rows_.assign(plan_.model.layers.size() * shape.microbatches, 0);
  for (MemoryCategory category :
       {MemoryCategory::kParameters, MemoryCategory::kGradients,
        MemoryCategory::kOptimizer, MemoryCategory::kStaging}) {
    resident_bytes_ += device.bytes_in_use(category);
  }
  return absl::OkStatus();
}

absl::Status EngineImpl::CreateStreams() {
  const int64_t before =
      options_.device->bytes_in_use(MemoryCategory::kStaging);
  for (int s = 0; s < schedule::kNumStreams; ++s) {
    const auto kind = static_cast<schedule::StreamKind>(s);
    ASSIGN_OR_RETURN(streams_[s],
                     options_.device->CreateStream(schedule::Name(kind)));
  }
  workspace_bytes_ =
      options_.device->bytes_in_use(MemoryCategory::kStaging) - before;
  return absl::OkStatus();
}

absl::Status EngineImpl::InitializeConstants() {
  const model::Shape& shape = plan_.shape;
  ops::CopyArgs copy;
  copy.count = shape.rotary_table_elements();
  ASSIGN_OR_RETURN(std::unique_ptr<device::Buffer> host,
                   options_.device->AllocateHost(copy.count * kFloat));
  float* tables = reinterpret_cast<float*>(host->data());
  layers::BuildRotaryTables(shape, tables);
  copy.x = tables;
  copy.out = reinterpret_cast<float*>(tables_->data());
  constants_ = layers::RotaryTablesAt(shape, copy.out.f32());
  streams_[0]->Launch(&RunCopy, &copy);
  return streams_[0]->Synchronize();
}

absl::Status EngineImpl::InitializeWeights() {
  if (!plan_.model.expert_biases.empty()) {
    ASSIGN_OR_RETURN(
        expert_biases_,
        ExpertBiases::Create(*options_.device, plan_.model.expert_biases,
                             plan_.shape.expert_bias_rate,
                             options_.initial_weights));
  }
  if (options_.initial_weights != nullptr) {
    LoadWeightsArgs load;
    load.model = &plan_.model;
    load.units = &plan_.units;
    load.buckets = buckets_.get();
    load.parameters = parameters_;
    load.device = options_.device;
    load.stream = streams_[0].get();
    RETURN_IF_ERROR(LoadWeights(*options_.initial_weights, load));
    streams_[0]->Launch(&RunRoundWeights, this);
    return streams_[0]->Synchronize();
  }
  fsdp::InitializeArgs random;
  random.units = &plan_.units;
  random.buckets = buckets_.get();
  random.parameters = parameters_;
  random.seed = options_.job.seed();
  streams_[0]->Launch(&RunInitialize, &random);
  streams_[0]->Launch(&RunRoundWeights, this);
  return streams_[0]->Synchronize();
}

void EngineImpl::RoundAllWeights(device::Stream& stream) const {
  for (const fsdp::Bucket& bucket : plan_.units.buckets) {
    fsdp::RoundWeights(*buckets_, bucket.id, stream);
  }
}

Bindings EngineImpl::MakeBindings() {
  Bindings b;
  b.plan = &plan_;
  b.who = options_.binding;
  b.device = options_.device;
  b.comms = options_.comms;
  for (int s = 0; s < schedule::kNumStreams; ++s) {
    b.streams[s] = streams_[s].get();
  }
  b.programs = {&options_.train};
  for (const auto* other : {&options_.eval, &options_.tapped}) {
    if (other->has_value()) b.programs.push_back(&**other);
  }
  b.arena = arena_.get();
  b.host_arena = host_arena_.get();
  b.buckets = buckets_.get();
  b.parameters = parameters_;
  b.constants = &constants_;
  b.expert_biases = expert_biases_.get();
  b.shapes = &shapes_;
  b.batches = reinterpret_cast<const int32_t*>(batches_->data());
  if (loss_tokens_ != nullptr) {
    b.loss_tokens = reinterpret_cast<const double*>(loss_tokens_->data());
  }
  if (routing_ != nullptr) {
    b.routing = reinterpret_cast<const int32_t*>(routing_->data());
  }
  b.control_record = reinterpret_cast<double*>(control_->data());
  b.control_records = b.control_record + control_layout_.doubles();
  b.control_layout = control_layout_;
  b.finish_control = &FinishControl;
  b.finish_control_arg = this;
  b.optimizer = &optimizer_;
  b.host_scalars = &scalars();
  b.scalars = reinterpret_cast<fsdp::OptimizerScalars*>(scalars_->data());
  b.routed_rows = routed_rows_.data();
  b.received_rows = received_rows_.data();
  b.exchanged_bytes = &exchanged_bytes_;
  if (replica_check_ != nullptr) b.gathered = &replica_check_->gathered();
  if (stuck_check_ != nullptr) b.changed_bits = stuck_check_->changed_bits();
  if (options_.on_failure) b.on_failure = &options_.on_failure;
  b.clock = options_.clock;
  b.released_memory = options_.released_memory;
  b.record_spans = options_.record_spans;
  b.check_live_set = options_.check_live_set;
  b.measure_memory = options_.measure_memory;
  return b;
}

absl::Status EngineImpl::LowerPrograms() {
  const Bindings bindings = MakeBindings();
  ASSIGN_OR_RETURN(train_.lowered,
                   LoweredProgram::Lower(options_.train, bindings),
                   _ << "lowering the training step");
  train_.stream_ops = schedule::OpsByStream(options_.train);
  if (options_.tapped.has_value()) {
    ASSIGN_OR_RETURN(tapped_.lowered,
                     LoweredProgram::Lower(*options_.tapped, bindings),
                     _ << "lowering the training step with taps");
    tapped_.stream_ops = schedule::OpsByStream(*options_.tapped);
  }
  if (!options_.eval.has_value()) return absl::OkStatus();
  ASSIGN_OR_RETURN(eval_, LoweredProgram::Lower(*options_.eval, bindings),
                   _ << "lowering the validation");
  return absl::OkStatus();
}

}  // namespace weft::exec

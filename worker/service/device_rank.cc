#include "worker/service/device_rank.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/logging.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "data/sampler.h"
#include "kernels/comm/cancellation.h"
#include "schedule/plan.h"
#include "worker/exec/initial_weights.h"
#include "worker/service/head_width.h"
#include "worker/service/initial_checkpoint.h"

namespace weft::service {
namespace {

constexpr int64_t kDefaultCollectiveTimeoutMs = 60000;

// One transport for every stream that communicates, in the order in which all
// ranks list their addresses.
enum TransportIndex { kEp, kGather, kReduce, kNumTransports };
constexpr const char* kTransportNames[] = {"ep", "gather", "reduce"};

// A communicator of a rank, and where the engine wants it.
struct Group {
  const char* name;
  TransportIndex transport;
  int id;  // in its transport
  fsdp::Axis axis;
  comm::Communicator* exec::Communicators::*slot;
};

constexpr Group kGroups[] = {
    {"ep", kEp, 0, fsdp::Axis::kEp, &exec::Communicators::ep},
    {"gather.dp", kGather, 0, fsdp::Axis::kDp, &exec::Communicators::gather_dp},
    {"gather.edp", kGather, 1, fsdp::Axis::kEdp,
     &exec::Communicators::gather_edp},
    {"reduce.dp", kReduce, 0, fsdp::Axis::kDp, &exec::Communicators::reduce_dp},
    {"reduce.edp", kReduce, 1, fsdp::Axis::kEdp,
     &exec::Communicators::reduce_edp},
    {"control", kReduce, 2, fsdp::Axis::kDp, &exec::Communicators::control},
};

// No stream ever holds more commands of a step: every op is one, and so is
// every wait for another. One more gives memory back at the end.
int CommandsOf(const schedule::Program& program) {
  size_t commands = 1;
  for (const schedule::Op& op : program.ops) commands += 1 + op.waits.size();
  return static_cast<int>(commands);
}

absl::StatusOr<schedule::Program> ReadProgram(const plan::v1::Program& proto,
                                              const schedule::Plan& declared,
                                              schedule::ProgramKind kind,
                                              absl::string_view name) {
  ASSIGN_OR_RETURN(schedule::Program program,
                   schedule::FromProto(proto, declared), _ << name);
  if (program.kind != kind) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": kind=", static_cast<int>(program.kind), ", not ",
                     static_cast<int>(kind)));
  }
  return program;
}

// Every sample that is held out is read once a validation, at most.
absl::Status CheckHeldOut(const v1::TrainingJob& job, int64_t held_out) {
  const int64_t batches = job.eval().batches();
  const int64_t batch = std::max<int64_t>(1, job.batch().global_batch());
  const int64_t most = held_out / batch;
  if (batches <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "eval.batches=", batches, " * batch.global_batch=", batch, " is ",
      batches * batch, " samples, but data.validation_fraction=",
      job.data().validation_fraction(), " of ", job.data().prefix(),
      " holds out ", held_out, "; ",
      most > 0 ? absl::StrCat("lower eval.batches to ", most, " or ") : "",
      "hold out more"));
}

class DeviceRank : public Rank {
 public:
  DeviceRank(const DeviceRankOptions& options,
             const worker::v1::Prepare& prepare)
      : options_(options), prepare_(prepare) {}

  // The streams end first, then what their collectives use, then the memory.
  ~DeviceRank() override {
    Cancel(absl::CancelledError("the job is over"));
    engine_.reset();
    communicators_.clear();
    transports_.clear();
    MutexLock lock(&mu_);
    device_.reset();
    cancellation_.reset();
  }

  absl::StatusOr<Addresses> Open() override {
    RETURN_IF_ERROR(ReadPlan());
    RETURN_IF_ERROR(OpenSamples());
    RETURN_IF_ERROR(OpenInitialWeights());
    RETURN_IF_ERROR(OpenDevice());
    Addresses addresses;
    for (int t = 0; t < kNumTransports; ++t) {
      TransportOptions transport;
      transport.kind = SharesMemory(t) ? kPeerTransport : options_.transport;
      transport.name = kTransportNames[t];
      transport.rank = binding_.rank;
      transport.world = binding_.world.size;
      transport.deadline = CollectiveTimeout();
      transport.cancellation = cancellation_.get();
      transport.device = device_.get();
      transport.ordinal = options_.ordinal;
      transport.rooted_groups = RootedGroups(t);
      ASSIGN_OR_RETURN(
          transports_.emplace_back(),
          options_.backend->CreateTransport(transport),
          _ << Needed(t) << "opening transport " << kTransportNames[t]);
      addresses.push_back(transports_.back()->address());
    }
    return addresses;
  }

  absl::Status Connect(const std::vector<Addresses>& ranks) override {
    for (int t = 0; t < kNumTransports; ++t) {
      std::vector<std::string> addresses;
      for (int rank = 0; rank < ranks.size(); ++rank) {
        if (ranks[rank].size() != kNumTransports) {
          return absl::InvalidArgumentError(
              absl::StrCat("rank ", rank, " sent ", ranks[rank].size(),
                           " addresses of ", int{kNumTransports}));
        }
        addresses.push_back(ranks[rank][t]);
      }
      RETURN_IF_ERROR(Annotate(transports_[t]->Connect(addresses),
                               absl::StrCat(Needed(t), "connecting transport ",
                                            kTransportNames[t])));
    }
    return MakeEngine();
  }

  exec::Engine& engine() override { return *engine_; }

  DeviceBytes device_bytes() const override {
    DeviceBytes bytes{};
    for (int c = 0; c < device::kNumMemoryCategories; ++c) {
      bytes[c] = device_->bytes_in_use(static_cast<device::MemoryCategory>(c));
    }
    return bytes;
  }

  void Cancel(absl::Status why) override {
    MutexLock lock(&mu_);
    if (cancelled_.ok()) cancelled_ = why;
    if (cancellation_ != nullptr) cancellation_->Cancel(why);
    if (device_ != nullptr) device_->Fail(why);
  }

 private:
  absl::Duration CollectiveTimeout() const {
    const int64_t ms = prepare_.job().limits().collective_timeout_ms();
    return absl::Milliseconds(ms > 0 ? ms : kDefaultCollectiveTimeoutMs);
  }

  // Whether its ranks fetch from each other's memory, whatever the others do.
  bool SharesMemory(int transport) const {
    return transport == kEp &&
           prepare_.job().parallel().dispatcher() == v1::DISPATCHER_FLEX;
  }

  // What an error of the transport is put behind: the field that asks for it.
  const char* Needed(int transport) const {
    return SharesMemory(transport)
               ? "parallel.dispatcher=DISPATCHER_FLEX needs ranks of an EP "
                 "group that read each other's memory; DISPATCHER_ALLGATHER "
                 "and DISPATCHER_ALLTOALL do not: "
               : "";
  }

  std::vector<int> RootedGroups(int transport) const {
    std::vector<int> ids;
    for (const Group& group : kGroups) {
      const std::vector<int> members =
          binding_.world.Members(group.axis, binding_.rank);
      if (group.transport == transport && members.size() > 1 &&
          members.front() == binding_.rank) {
        ids.push_back(group.id);
      }
    }
    return ids;
  }

  // Recomputes what the coordinator computed, and refuses a difference.
  absl::Status ReadPlan() {
    ASSIGN_OR_RETURN(binding_, schedule::FromProto(prepare_.binding()));
    const schedule::Plan declared = schedule::Declare(prepare_.job());
    RETURN_IF_ERROR(CheckHeadWidth(declared.shape,
                                   options_.backend->widest_head(),
                                   options_.backend->kind()));
    if (binding_.world.size != declared.world.size ||
        binding_.world.ep != declared.world.ep) {
      return absl::InvalidArgumentError(
          absl::StrCat("binding has world ", binding_.world.size, " and ep ",
                       binding_.world.ep, ", the job ", declared.world.size,
                       " and ", declared.world.ep));
    }
    if (declared.units.Hash() != prepare_.units().hash()) {
      return absl::FailedPreconditionError(
          absl::StrCat("FSDP units differ: this worker computes hash ",
                       absl::Hex(declared.units.Hash()), ", the coordinator ",
                       absl::Hex(prepare_.units().hash()),
                       "; run the same version of both"));
    }
    using schedule::ProgramKind;
    ASSIGN_OR_RETURN(train_, ReadProgram(prepare_.train(), declared,
                                         ProgramKind::kTrain, "train"));
    const int64_t validations = prepare_.job().eval().batches();
    if (prepare_.has_eval() != (validations > 0)) {
      return absl::InvalidArgumentError(absl::StrCat(
          prepare_.has_eval() ? "a" : "no",
          " program to validate came for eval.batches=", validations));
    }
    if (prepare_.has_eval()) {
      ASSIGN_OR_RETURN(eval_, ReadProgram(prepare_.eval(), declared,
                                          ProgramKind::kEval, "eval"));
    }
    if (prepare_.has_tapped()) {
      ASSIGN_OR_RETURN(tapped_, ReadProgram(prepare_.tapped(), declared,
                                            ProgramKind::kTrain, "tapped"));
    }
    return absl::OkStatus();
  }

  absl::Status OpenSamples() {
    const v1::TrainingJob& job = prepare_.job();
    data::Sampler::Options options;
    options.prefix = job.data().prefix();
    options.loss_mask_prefix = job.data().loss_mask_prefix();
    options.padding_mask_prefix = job.data().padding_mask_prefix();
    options.sequence_length = job.data().sequence_length();
    options.validation_fraction = job.data().validation_fraction();
    options.kind = job.data().sample_kind();
    options.order = job.data().sample_order();
    options.seed = job.seed();
    options.vocab_size = job.model().vocab_size();
    ASSIGN_OR_RETURN(samples_, data::Sampler::Create(options),
                     _ << "opening the dataset");
    return CheckHeldOut(job, samples_->size(data::Split::kValidation));
  }

  absl::Status OpenInitialWeights() {
    const v1::TrainingJob& job = prepare_.job();
    ASSIGN_OR_RETURN(initial_weights_,
                     OpenInitialCheckpoint(job, schedule::Declare(job).model));
    return absl::OkStatus();
  }

  absl::Status OpenDevice() {
    DeviceNeeds needs;
    needs.memory_limit_bytes = options_.device_memory_bytes;
    needs.stream_commands = CommandsOf(train_);
    for (const auto* other : {&eval_, &tapped_}) {
      if (!other->has_value()) continue;
      needs.stream_commands =
          std::max(needs.stream_commands, CommandsOf(**other));
    }
    {
      MutexLock lock(&mu_);
      if (!cancelled_.ok()) return cancelled_;
    }
    ASSIGN_OR_RETURN(auto cancellation, comm::Cancellation::Create());
    // Without the lock: it can take long, and Cancel() waits for no device.
    ASSIGN_OR_RETURN(auto device,
                     options_.backend->CreateDevice(options_.ordinal, needs));
    MutexLock lock(&mu_);
    cancellation_ = std::move(cancellation);
    device_ = std::move(device);
    return cancelled_;
  }

  absl::Status MakeEngine() {
    exec::EngineOptions engine;
    for (const Group& group : kGroups) {
      ASSIGN_OR_RETURN(communicators_.emplace_back(),
                       transports_[group.transport]->CreateCommunicator(
                           group.name, group.id,
                           binding_.world.Members(group.axis, binding_.rank)),
                       _ << Needed(group.transport) << "creating communicator "
                         << group.name);
      engine.comms.*group.slot = communicators_.back().get();
    }
    engine.job = prepare_.job();
    engine.binding = binding_;
    engine.train = std::move(train_);
    engine.eval = std::move(eval_);
    engine.tapped = std::move(tapped_);
    engine.programs_are_proven = true;  // by FromProto
    engine.device = device_.get();
    engine.samples = samples_.get();
    engine.initial_weights = initial_weights_.get();
    engine.clock = options_.clock;
    engine.on_failure = [this](const absl::Status& why) {
      // After a Stop, what each stream was in the middle of.
      LOG(INFO) << "job=" << prepare_.job_id() << " rank=" << binding_.rank
                << " interrupted " << LogValue(why.ToString());
      cancellation_->Cancel(why);
    };
    engine.released_memory = options_.released_memory;
    engine.check_live_set = options_.check_live_set;
    engine.measure_memory = options_.measure_memory;
    ASSIGN_OR_RETURN(engine_, exec::Engine::Create(std::move(engine)));
    initial_weights_.reset();
    return absl::OkStatus();
  }

  const DeviceRankOptions options_;
  const worker::v1::Prepare& prepare_;  // of the session, which owns this
  schedule::Binding binding_;
  schedule::Program train_;
  std::optional<schedule::Program> eval_;
  std::optional<schedule::Program> tapped_;
  std::unique_ptr<data::SampleSource> samples_;
  std::unique_ptr<exec::InitialWeights>
      initial_weights_;  // until they are read

  // Guards what Cancel() reaches; the runner, which sets and destroys it, reads
  // without it. Never held while a device is made.
  Mutex mu_;
  absl::Status cancelled_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<comm::Cancellation> cancellation_;
  std::unique_ptr<device::Device> device_;

  std::vector<std::unique_ptr<Transport>> transports_;
  std::vector<std::unique_ptr<comm::Communicator>> communicators_;
  std::unique_ptr<exec::Engine> engine_;
};

class DeviceRankFactory : public RankFactory {
 public:
  explicit DeviceRankFactory(DeviceRankOptions options) : options_(options) {}

  std::unique_ptr<Rank> Create(const worker::v1::Prepare& prepare) override {
    return std::make_unique<DeviceRank>(options_, prepare);
  }

 private:
  const DeviceRankOptions options_;
};

}  // namespace

std::unique_ptr<RankFactory> MakeDeviceRankFactory(DeviceRankOptions options) {
  return std::make_unique<DeviceRankFactory>(options);
}

}  // namespace weft::service

#include "worker/exec/testing/local_world.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "checkpoint/format/safetensors_file.h"
#include "kernels/device/cpu/cpu_device.h"
#include "worker/exec/testing/observed_device.h"

namespace weft::exec::testing {
namespace {

// An empty folder for one call.
absl::StatusOr<std::string> MakeFolder() {
  const char* root = std::getenv("TEST_TMPDIR");
  std::string path =
      absl::StrCat(root != nullptr ? root : "/tmp", "/local_world.XXXXXX");
  if (::mkdtemp(path.data()) == nullptr) {
    return absl::InternalError(absl::StrCat("cannot create ", path));
  }
  return path;
}

int64_t Elements(const model::ParamDecl& param) {
  int64_t elements = 1;
  for (int64_t size : param.shape) elements *= size;
  return elements;
}

// Copies the fragments of one file into whole parameters, counting elements.
absl::Status CopyFragments(const std::string& path,
                           std::map<std::string, std::vector<float>>& params,
                           std::map<std::string, int64_t>& seen) {
  ASSIGN_OR_RETURN(const checkpoint::SafetensorsFile file,
                   checkpoint::SafetensorsFile::Open(path));
  for (const checkpoint::SafetensorsView& view : file.tensors()) {
    const std::vector<std::string> parts = absl::StrSplit(view.name, '@');
    int64_t begin = 0;
    if (parts.size() != 2 || !absl::SimpleAtoi(parts[1], &begin)) {
      return absl::InternalError(absl::StrCat("fragment ", view.name));
    }
    std::vector<float>& whole = params[parts[0]];
    if (begin + view.elements() > static_cast<int64_t>(whole.size())) {
      return absl::InternalError(absl::StrCat(view.name, " is too long"));
    }
    std::memcpy(whole.data() + begin, view.bytes.data(), view.bytes.size());
    seen[parts[0]] += view.elements();
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<LocalWorld>> LocalWorld::Create(
    LocalWorldOptions options) {
  auto world = std::unique_ptr<LocalWorld>(new LocalWorld(std::move(options)));
  const LocalWorldOptions& opts = world->options_;
  ASSIGN_OR_RETURN(world->plan_, schedule::Compile(opts.job));
  if (opts.edit) opts.edit(world->plan_.train);
  comm::LoopbackOptions loopback;
  loopback.ranks = world->plan_.world.size;
  loopback.deadline = opts.deadline;
  loopback.interceptor = opts.interceptor;
  ASSIGN_OR_RETURN(world->loopback_,
                   comm::LoopbackWorld::Create(std::move(loopback)));
  for (int rank = 0; rank < world->plan_.world.size; ++rank) {
    ASSIGN_OR_RETURN(world->cancellations_.emplace_back(),
                     comm::Cancellation::Create());
  }
  if (opts.job.parallel().dispatcher() == v1::DISPATCHER_FLEX &&
      !opts.interceptor) {
    RETURN_IF_ERROR(world->CreateSharedMemory());
  }
  for (int rank = 0; rank < world->plan_.world.size; ++rank) {
    world->ranks_.push_back(std::make_unique<Rank>());
    RETURN_IF_ERROR(world->CreateRank(rank));
  }
  return world;
}

LocalWorld::~LocalWorld() = default;

absl::Status LocalWorld::CreateSharedMemory() {
  std::vector<std::string> addresses;
  for (int rank = 0; rank < plan_.world.size; ++rank) {
    comm::ShmTransportOptions options;
    options.name = "ep";
    options.rank = rank;
    options.world = plan_.world.size;
    options.deadline = options_.deadline;
    options.cancellation = cancellations_[rank].get();
    ASSIGN_OR_RETURN(shared_memory_.emplace_back(),
                     comm::ShmTransport::Create(options));
    addresses.push_back(shared_memory_.back()->address());
  }
  for (auto& transport : shared_memory_) {
    RETURN_IF_ERROR(transport->Connect(addresses));
  }
  return absl::OkStatus();
}

absl::StatusOr<comm::Communicator*> LocalWorld::CreateCommunicator(
    int rank, fsdp::Axis axis, absl::string_view name) {
  const std::vector<int> members = plan_.world.Members(axis, rank);
  std::unique_ptr<comm::Communicator> communicator;
  if (axis == fsdp::Axis::kEp && !shared_memory_.empty()) {
    ASSIGN_OR_RETURN(communicator, shared_memory_[rank]->CreateCommunicator(
                                       name, /*id=*/0, members));
  } else {
    ASSIGN_OR_RETURN(communicator,
                     loopback_->CreateCommunicator(name, members, rank,
                                                   cancellations_[rank].get()));
  }
  std::vector<std::unique_ptr<comm::Communicator>>& all =
      ranks_[rank]->communicators;
  all.push_back(std::move(communicator));
  return all.back().get();
}

absl::Status LocalWorld::CreateDevice(int rank) {
  std::unique_ptr<device::Device>& device = ranks_[rank]->device;
  device::CpuDeviceOptions device_options;
  device_options.stream_queue_capacity = 1 << 14;
  ASSIGN_OR_RETURN(device, device::CreateCpuDevice(device_options));
  DeviceObserver observer;
  observer.creates_event = options_.creates_event;
  if (options_.finished) {
    observer.finished = [this, rank](absl::string_view stream) {
      options_.finished(rank, stream);
    };
  }
  if (options_.allocated) {
    observer.allocated = [this, rank](device::MemoryCategory category,
                                      device::Buffer& buffer) {
      options_.allocated(rank, category, buffer);
    };
  }
  if (observer.finished || observer.creates_event || observer.allocated) {
    device = ObserveDevice(std::move(device), std::move(observer));
  }
  if (options_.wrap_device) device = options_.wrap_device(std::move(device));
  return absl::OkStatus();
}

absl::Status LocalWorld::Connect(int rank, Communicators& comms) {
  using fsdp::Axis;
  ASSIGN_OR_RETURN(comms.ep, CreateCommunicator(rank, Axis::kEp, "ep"));
  ASSIGN_OR_RETURN(comms.gather_dp,
                   CreateCommunicator(rank, Axis::kDp, "gather.dp"));
  ASSIGN_OR_RETURN(comms.gather_edp,
                   CreateCommunicator(rank, Axis::kEdp, "gather.edp"));
  ASSIGN_OR_RETURN(comms.reduce_dp,
                   CreateCommunicator(rank, Axis::kDp, "reduce.dp"));
  ASSIGN_OR_RETURN(comms.reduce_edp,
                   CreateCommunicator(rank, Axis::kEdp, "reduce.edp"));
  ASSIGN_OR_RETURN(comms.control,
                   CreateCommunicator(rank, Axis::kDp, "control"));
  return absl::OkStatus();
}

absl::Status LocalWorld::CreateRank(int rank) {
  Rank& r = *ranks_[rank];
  RETURN_IF_ERROR(CreateDevice(rank));
  r.samples =
      std::make_unique<SyntheticSamples>(plan_.shape.vocab, options_.samples);
  EngineOptions engine;
  engine.job = options_.job;
  engine.binding = {rank, plan_.world};
  engine.train = plan_.train;
  engine.eval = plan_.eval;
  engine.tapped = plan_.tapped;
  engine.programs_are_proven = !options_.edit || options_.trust_edit;
  engine.device = r.device.get();
  engine.samples = r.samples.get();
  engine.initial_weights = options_.initial_weights;
  engine.clock = options_.clocks.empty() ? &RealClock() : options_.clocks[rank];
  engine.on_failure = [this, rank](const absl::Status& why) {
    NoteFailure(rank);
    cancellations_[rank]->Cancel(why);
  };
  engine.released_memory = options_.released_memory;
  engine.check_live_set = options_.check_live_set;
  engine.measure_memory = options_.measure_memory;
  RETURN_IF_ERROR(Connect(rank, engine.comms));
  ASSIGN_OR_RETURN(r.engine, Engine::Create(std::move(engine)));
  return absl::OkStatus();
}

void LocalWorld::Cancel(const absl::Status& why) {
  for (auto& cancellation : cancellations_) cancellation->Cancel(why);
}

void LocalWorld::NoteFailure(int rank) {
  int none = -1;
  first_to_fail_.compare_exchange_strong(none, rank);
}

absl::Status LocalWorld::ForEachRank(
    const std::function<absl::Status(int rank, Engine& engine)>& fn) {
  first_to_fail_ = -1;
  std::vector<absl::Status> statuses(size());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size(); ++rank) {
    threads.emplace_back([&, rank] {
      const absl::Status status = fn(rank, engine(rank));
      if (status.ok()) return;
      NoteFailure(rank);
      statuses[rank] = Annotate(status, absl::StrCat("rank ", rank));
      Cancel(statuses[rank]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (first_to_fail_ < 0) return absl::OkStatus();
  const absl::Status& first = statuses[first_to_fail_];
  const auto is_cause = [](const absl::Status& status) {
    return !status.ok() &&
           !absl::StrContains(status.message(), " left group ") &&
           !absl::StrContains(status.message(), " has left the group: ");
  };
  // A rank that fails because a peer left a group may do so before that peer
  // comes to say why it left.
  const auto cause = std::find_if(statuses.begin(), statuses.end(), is_cause);
  return is_cause(first) || cause == statuses.end() ? first : *cause;
}

absl::StatusOr<std::vector<std::vector<StepResult>>> LocalWorld::RunSteps(
    int steps) {
  std::vector<std::vector<StepResult>> results(size());
  RETURN_IF_ERROR(ForEachRank([&](int rank, Engine& engine) -> absl::Status {
    results[rank].resize(steps);
    for (int i = 0; i < steps; ++i) {
      RETURN_IF_ERROR(engine.RunStep(steps_run_ + i + 1, /*control_word=*/0,
                                     &results[rank][i]));
    }
    return absl::OkStatus();
  }));
  steps_run_ += steps;
  return results;
}

absl::StatusOr<std::map<std::string, std::vector<float>>>
LocalWorld::Parameters() {
  std::vector<model::ParamDecl> params = plan_.model.params;
  for (const model::ExpertBiasDecl& bias : plan_.model.expert_biases) {
    params.push_back(bias.AsParameter());
  }
  return Collect(params, [](Engine& engine, absl::string_view folder) {
    return engine.WriteParameters(folder);
  });
}

absl::StatusOr<std::map<std::string, std::vector<float>>>
LocalWorld::Gradients() {
  std::vector<model::ParamDecl> params;
  for (const model::ParamDecl& decl : plan_.model.params) {
    if (!decl.frozen) params.push_back(decl);
  }
  return Collect(params, [](Engine& engine, absl::string_view folder) {
    return engine.WriteGradients(folder);
  });
}

absl::StatusOr<std::map<std::string, std::vector<float>>> LocalWorld::Collect(
    const std::vector<model::ParamDecl>& decls,
    const std::function<absl::Status(Engine& engine, absl::string_view folder)>&
        write) {
  ASSIGN_OR_RETURN(const std::string folder, MakeFolder());
  RETURN_IF_ERROR(
      ForEachRank([&](int, Engine& engine) { return write(engine, folder); }));
  std::map<std::string, std::vector<float>> params;
  for (const model::ParamDecl& decl : decls) {
    params[decl.name].resize(Elements(decl));
  }
  std::map<std::string, int64_t> seen;
  for (int rank = 0; rank < size(); ++rank) {
    RETURN_IF_ERROR(
        CopyFragments(absl::StrFormat("%s/rank-%05d.safetensors", folder, rank),
                      params, seen));
  }
  std::filesystem::remove_all(folder);
  for (const auto& [name, values] : params) {
    if (seen[name] != static_cast<int64_t>(values.size())) {
      return absl::InternalError(absl::StrCat(name, ": files hold ", seen[name],
                                              " of ", values.size()));
    }
  }
  return params;
}

}  // namespace weft::exec::testing

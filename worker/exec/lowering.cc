#include "worker/exec/lowering.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "schedule/op_name.h"
#include "worker/layers/routing.h"

namespace weft::exec {
namespace {

using schedule::Op;
using schedule::OpKind;
using schedule::Program;

std::string LabelOf(const schedule::Plan& plan, const Op& op, int id) {
  std::string label = absl::StrCat(
      "op ", id, " (", schedule::OpName(plan.model, plan.units, op));
  if (op.microbatch >= 0) {
    absl::StrAppend(&label, ", microbatch ", op.microbatch);
  }
  return absl::StrCat(label, ")");
}

// Of the many ops of a deep model, how many are lowered between two looks at
// whether the device has failed.
constexpr int kOpsBetweenLooks = 256;

}  // namespace

absl::StatusOr<std::unique_ptr<LoweredProgram>> LoweredProgram::Lower(
    const Program& program, const Bindings& bindings) {
  auto lowered = std::unique_ptr<LoweredProgram>(new LoweredProgram(bindings));
  RETURN_IF_ERROR(lowered->LowerAll(program));
  return lowered;
}

absl::Status LoweredProgram::LowerAll(const Program& program) {
  const size_t ops = program.ops.size();
  launches_.resize(ops);
  spans_.resize(ops);
  labels_.resize(ops);
  checks_.resize(ops);
  excess_bytes_.resize(ops);
  if (b_.measure_memory) samples_.resize(ops);
  for (int id = 0; id < ops; ++id) {
    labels_[id] = LabelOf(*b_.plan, program.ops[id], id);
    Launch& launch = launches_[id];
    launch.device = b_.device;
    launch.label = labels_[id].c_str();
    launch.on_failure = b_.on_failure;
    spans_[id].op = id;
    if (b_.record_spans) {
      launch.clock = b_.clock;
      launch.span = &spans_[id];
    }
    if (b_.measure_memory) {
      samples_[id].arena = b_.arena;
      launch.sample = &samples_[id];
    }
    RETURN_IF_ERROR(Look(id));
    RETURN_IF_ERROR(BindWork(program, id));
  }
  if (b_.check_finite) RETURN_IF_ERROR(BindFiniteChecks(program));
  RETURN_IF_ERROR(BindMemory(program));
  RETURN_IF_ERROR(CreateEvents(program));
  for (int id = 0; id < ops; ++id) {
    RETURN_IF_ERROR(Look(id));
    AppendEntries(program, id);
  }
  return absl::OkStatus();
}

absl::Status LoweredProgram::Look(int id) const {
  if (id % kOpsBetweenLooks != 0) return absl::OkStatus();
  return b_.device->status();
}

// Binds what happens to memory before its first and after its last use.
absl::Status LoweredProgram::BindMemory(const Program& program) {
  std::vector<ValueLifetime> lifetimes = UsesOf(program);
  peak_live_bytes_ = PeakLiveBytes(program, lifetimes);
  if (b_.released_memory == ReleasedMemory::kKeep) return absl::OkStatus();
  lifetimes = LifetimesOf(program);
  std::vector<std::vector<Region>> first(program.ops.size());
  std::vector<std::vector<Region>> dead(program.ops.size());
  for (int v = 0; v < program.values.size(); ++v) {
    const ValueLifetime& life = lifetimes[v];
    if (life.first < 0) continue;
    const Region region = {Address(program.values[v]), program.values[v].bytes};
    first[life.first].push_back(region);
    if (life.dead_after < 0) continue;
    dead[life.dead_after].push_back(region);
  }
  const bool poison = b_.released_memory == ReleasedMemory::kPoison;
  std::vector<int64_t> allowed;
  if (b_.check_live_set) {
    std::vector<const Program*> others = b_.programs;
    others.erase(std::remove(others.begin(), others.end(), &program),
                 others.end());
    allowed = AllowedBytes(program, lifetimes, others, ::sysconf(_SC_PAGESIZE));
  }
  for (int id = 0; id < program.ops.size(); ++id) {
    RETURN_IF_ERROR(Look(id));
    Launch& launch = launches_[id];
    launch.dead_memory = b_.released_memory;
    regions_.push_back(std::move(dead[id]));
    launch.dead = regions_.back();
    if (poison) {
      regions_.push_back(std::move(first[id]));
      launch.first_written = regions_.back();
    }
    if (b_.check_live_set && allowed[id] >= 0) {
      checks_[id] = {b_.arena, allowed[id], &excess_bytes_[id]};
      launch.check = &checks_[id];
    }
  }
  return absl::OkStatus();
}

// One event for each op that another stream, or the host, waits for.
absl::Status LoweredProgram::CreateEvents(const Program& program) {
  events_.resize(program.ops.size());
  auto create = [&](int op) -> absl::Status {
    if (events_[op] != nullptr) return absl::OkStatus();
    ASSIGN_OR_RETURN(events_[op], b_.device->CreateEvent());
    return absl::OkStatus();
  };
  for (int id = 0; id < program.ops.size(); ++id) {
    RETURN_IF_ERROR(Look(id));
    for (int wait : program.ops[id].waits) RETURN_IF_ERROR(create(wait));
  }
  return absl::OkStatus();
}

void LoweredProgram::AppendEntries(const Program& program, int id) {
  const Op& op = program.ops[id];
  if (op.kind == OpKind::kHostWait) {
    AppendHostWait(program, id);
    return;
  }
  std::vector<device::Event*>& waits = waits_.emplace_back();
  for (int wait : op.waits) waits.push_back(EventOf(wait));
  Entry entry;
  entry.stream = b_.streams[static_cast<int>(op.stream)];
  entry.launch = &launches_[id];
  entry.waits = waits;
  entry.record = EventOf(id);
  entries_.push_back(entry);
}

void LoweredProgram::AppendHostWait(const Program& program, int id) {
  const Op& op = program.ops[id];
  CountsTally& tally = AddTally(program, op.args.front());
  std::vector<device::Event*>& waits = waits_.emplace_back();
  for (int wait : op.waits) waits.push_back(EventOf(wait));
  Entry entry;
  entry.waits = waits;
  entry.host_fn = &TallyCounts;
  entry.host_arg = &tally;
  entries_.push_back(entry);
}

LoweredProgram::CountsTally& LoweredProgram::AddTally(const Program& program,
                                                      int value) {
  const schedule::Value& counts = program.values[value];
  const model::Shape& shape = b_.plan->shape;
  const int layer = b_.plan->model.values[counts.decl].layer;
  CountsTally& tally = tallies_.emplace_back();
  tally.counts = reinterpret_cast<const int32_t*>(Address(counts));
  tally.routed_rows = b_.routed_rows + layer * shape.experts;
  tally.shape = &b_.shapes->at(shape.sequences_of(counts.microbatch));
  tally.ep_rank = b_.plan->world.IndexOf(fsdp::Axis::kEp, b_.who.rank);
  tally.received_rows =
      b_.received_rows + layer * shape.microbatches + counts.microbatch;
  return tally;
}

absl::Status LoweredProgram::TallyCounts(void* arg) {
  const CountsTally& tally = *static_cast<const CountsTally*>(arg);
  const model::Shape& shape = *tally.shape;
  for (int64_t i = 0; i < shape.ep * shape.experts; ++i) {
    tally.routed_rows[i % shape.experts] += tally.counts[i];
  }
  const layers::Routing routing(shape, tally.ep_rank, tally.counts);
  *tally.received_rows = routing.ReceivedRows();
  if (tally.unbounded == nullptr) return absl::OkStatus();
  const absl::Status bounded = routing.CheckBound(shape.max_received_rows());
  return bounded.ok() ? bounded : Annotate(bounded, tally.unbounded);
}

int64_t LoweredProgram::measured_peak_bytes() const {
  int64_t peak = 0;
  for (const ResidentSample& sample : samples_) {
    peak = std::max(peak, sample.bytes);
  }
  return peak;
}

int64_t LoweredProgram::live_set_excess_bytes() const {
  int64_t excess = 0;
  for (int64_t bytes : excess_bytes_) excess = std::max(excess, bytes);
  return excess;
}

}  // namespace weft::exec

// What each kind of op does: bound to its memory once, run in every step.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/ops/elementwise/elementwise.h"
#include "worker/exec/lowering.h"
#include "worker/layers/node_table.h"

namespace weft::exec {
namespace {

using schedule::Op;
using schedule::OpKind;
using schedule::Program;

const char* TagName(const schedule::Plan& plan, const Op& op) {
  if (op.kind == OpKind::kNode) {
    return layers::NodeName(plan.model.node(op.layer, op.node).kind, op.phase);
  }
  return schedule::Name(op.kind);
}

// The n of layers.n; -1: of no decoder layer.
int32_t DecoderLayer(const model::ModelDecl& model, int layer) {
  const bool is_decoder =
      layer >= 0 && model.layers[layer].kind == model::LayerKind::kDecoder;
  return is_decoder ? layer - 1 : -1;  // the embedding comes first
}

// By value, the first op that uses it, which writes it.
std::vector<int> WritersOf(const Program& program) {
  std::vector<int> writers(program.values.size(), -1);
  for (size_t id = 0; id < program.ops.size(); ++id) {
    for (int value : program.ops[id].args) {
      if (value >= 0 && writers[value] < 0) writers[value] = id;
    }
  }
  return writers;
}

bool IsExchange(const model::NodeDecl& node) {
  return node.kind == model::NodeKind::kDispatch ||
         node.kind == model::NodeKind::kCombine;
}

}  // namespace

absl::Status LoweredProgram::BindWork(const Program& program, int id) {
  switch (program.ops[id].kind) {
    case OpKind::kNode:
      return BindNode(program, id);
    case OpKind::kGather:
      BindGather(program, id);
      break;
    case OpKind::kAdd:
      BindAdd(program, id);
      break;
    case OpKind::kReduce:
      BindReduce(program, id);
      break;
    case OpKind::kControl:
      return BindControl(program, id);
    case OpKind::kOptimizer:
      BindOptimizer(program, id);
      break;
    case OpKind::kTap:
      return BindTap(program, id);
    case OpKind::kRelease:
      BindRelease(program, id);
      break;
    case OpKind::kHostWait:  // the launching thread's
      break;
  }
  return absl::OkStatus();
}

absl::Status LoweredProgram::BindNode(const Program& program, int id) {
  const Op& op = program.ops[id];
  const schedule::Plan& plan = *b_.plan;
  const model::LayerDecl& layer = plan.model.layers[op.layer];
  const model::NodeDecl& node = layer.nodes[op.node];
  NodeWork& work = nodes_.emplace_back();
  work.fn = layers::FindNode(node.kind, op.phase);
  if (work.fn == nullptr) {
    return absl::UnimplementedError(
        absl::StrCat(labels_[id], ": no function computes it"));
  }
  layers::NodeContext& ctx = work.ctx;
  ctx.shape = &b_.shapes->at(plan.shape.sequences_of(op.microbatch));
  ctx.constants = b_.constants;
  BindTensors(program, op, *node.Find(op.phase), ctx);
  ctx.ep_rank = plan.world.IndexOf(fsdp::Axis::kEp, b_.who.rank);
  if (op.stream == schedule::StreamKind::kEp) ctx.ep = b_.comms.ep;
  if (op.stream == schedule::StreamKind::kReduce) ctx.dp = b_.comms.reduce_dp;
  ctx.microbatch = op.microbatch;
  ctx.steps = node.Find(op.phase)->steps;
  ctx.batch = b_.batches;
  for (int m = 0; m < op.microbatch; ++m) {
    ctx.batch += plan.shape.sequences_of(m) * plan.shape.sample_words();
  }
  if (b_.loss_tokens != nullptr) {
    ctx.loss_tokens =
        b_.loss_tokens + plan.shape.loss_token_numbers() * op.microbatch;
  }
  if (b_.expert_biases != nullptr) {
    ctx.expert_bias = b_.expert_biases->OfLayer(op.layer);
  }
  if (b_.routing != nullptr) {
    ctx.routing = b_.routing;
    for (int m = 0; m < op.microbatch; ++m) {
      ctx.routing +=
          plan.shape.routers() * plan.shape.Of(m).tokens * plan.shape.top_k;
    }
  }
  ctx.tag = TagOf(program, id);
  if (layer.moe) RETURN_IF_ERROR(BindWorkspace(ctx));
  if (IsExchange(node)) work.exchanged_bytes = b_.exchanged_bytes;
  launches_[id].work = &RunNode;
  launches_[id].arg = &work;
  return absl::OkStatus();
}

void LoweredProgram::BindTensors(const Program& program, const Op& op,
                                 const model::PhaseDecl& phase,
                                 layers::NodeContext& ctx) {
  std::vector<device::Tensor>& args = args_.emplace_back();
  for (int slot : phase.arg_slots) {
    const int value = slot < 0 ? -1 : op.args[slot];
    args.push_back(
        value < 0 ? device::Tensor()
                  : device::Tensor(
                        Address(program.values[value]),
                        b_.plan->model.values[phase.args[slot].value].dtype));
  }
  std::vector<device::ConstTensor>& params = params_.emplace_back();
  for (int slot : phase.param_slots) {
    params.push_back(slot < 0 ? device::ConstTensor()
                              : ParamAddress(program, op.params[slot]));
  }
  std::vector<layers::Grad>& grads = grads_.emplace_back();
  for (int slot : phase.grad_slots) {
    if (slot < 0) {
      grads.push_back({});
      continue;
    }
    const schedule::GradUse& use = op.grads[slot];
    grads.push_back({GradAddress(program, use), use.accumulate});
  }
  ctx.args = args.data();
  ctx.params = params.data();
  ctx.grads = grads.data();
}

absl::Status LoweredProgram::BindWorkspace(layers::NodeContext& ctx) {
  const layers::WorkspaceSizes sizes = layers::SizesOfWorkspace(*ctx.shape);
  std::vector<comm::Segment>& segments = segments_.emplace_back();
  segments.resize(2 * sizes.segments);
  ctx.workspace.sends = segments.data();
  ctx.workspace.receives = segments.data() + sizes.segments;
  ASSIGN_OR_RETURN(ctx.workspace.offsets,
                   host_.TakeArray<int64_t>(sizes.offsets));
  return absl::OkStatus();
}

void LoweredProgram::BindGather(const Program& program, int id) {
  const Op& op = program.ops[id];
  const fsdp::Bucket& bucket = b_.plan->units.buckets[op.bucket];
  fsdp::GatherWork& work = gathers_.emplace_back();
  work.comm =
      bucket.axis == fsdp::Axis::kDp ? b_.comms.gather_dp : b_.comms.gather_edp;
  work.slice =
      b_.buckets->weights(op.bucket).at(b_.buckets->slice(op.bucket).begin);
  work.whole = {Address(program.values[op.args.front()]), bucket.dtype};
  work.slice_elements = bucket.slice_elements();
  work.tag = TagOf(program, id);
  launches_[id].work = &RunGather;
  launches_[id].arg = &work;
}

// Unless somebody compares what was gathered, what happens to dead memory is
// all a release does.
void LoweredProgram::BindRelease(const Program& program, int id) {
  if (b_.gathered == nullptr) return;
  const Op& op = program.ops[id];
  const schedule::Value& value = program.values[op.args.front()];
  ReleaseWork& work = releases_.emplace_back();
  work.is_on = &b_.gathered->is_on;
  work.sum.bytes = value.bytes;
  work.sum.x = Address(value);
  work.sum.out = &b_.gathered->sums[op.bucket];
  work.sum.accumulate = true;
  launches_[id].work = &RunRelease;
  launches_[id].arg = &work;
}

void LoweredProgram::BindAdd(const Program& program, int id) {
  const Op& op = program.ops[id];
  const fsdp::Bucket& bucket = b_.plan->units.buckets[op.bucket];
  paddings_.push_back(fsdp::PaddingOf(bucket));
  fsdp::AddWork& work = adds_.emplace_back();
  work.gradient = GradientValue(program, op.args.front());
  work.sum = b_.buckets->gradients(op.bucket).data;
  work.elements = bucket.elements;
  work.padding = paddings_.back();
  work.accumulate = op.accumulate;
  launches_[id].work = &RunAdd;
  launches_[id].arg = &work;
}

void LoweredProgram::BindReduce(const Program& program, int id) {
  const Op& op = program.ops[id];
  const fsdp::Bucket& bucket = b_.plan->units.buckets[op.bucket];
  paddings_.push_back(fsdp::PaddingOf(bucket));
  fsdp::ReduceWork& work = reduces_.emplace_back();
  work.comm =
      bucket.axis == fsdp::Axis::kDp ? b_.comms.reduce_dp : b_.comms.reduce_edp;
  work.elements = bucket.elements;
  work.padding = paddings_.back();
  work.factor = 1.0f / static_cast<float>(b_.plan->world.size);
  work.tag = TagOf(program, id);
  launches_[id].arg = &work;
  if (op.args.empty()) {
    const fsdp::BucketView& gradients = b_.buckets->gradients(op.bucket);
    work.gradient = gradients.data;
    work.shard = gradients.at(b_.buckets->slice(op.bucket).begin);
    work.staging = b_.buckets->staging(op.bucket);
    const bool whole = program.strategy == fsdp::Strategy::kNoShard;
    launches_[id].work = whole ? &RunReduceInPlace : &RunReduceToOwnSlice;
    return;
  }
  work.gradient = GradientValue(program, op.args.front());
  work.shard = b_.buckets->gradients(op.bucket).data;
  work.staging = b_.buckets->staging(op.bucket);
  work.accumulate = op.accumulate;
  launches_[id].work = &RunReduceToShard;
}

absl::Status LoweredProgram::BindControl(const Program& program, int id) {
  std::vector<fsdp::SliceView>& slices = slices_.emplace_back();
  if (program.kind != schedule::ProgramKind::kEval) {
    for (const fsdp::Bucket& bucket : b_.plan->units.buckets) {
      if (bucket.frozen) continue;
      const fsdp::Range slice = b_.buckets->slice(bucket.id);
      slices.push_back(
          {b_.buckets->gradients(bucket.id).at(slice.begin), slice.elements()});
    }
  }
  ControlOp& op = controls_.emplace_back();
  op.bindings = &b_;
  BindTallies(program, id, op);
  fsdp::ControlWork& work = op.exchange;
  work.layout = b_.control_layout;
  work.comm = b_.comms.control;
  work.slices = slices;
  work.record = b_.control_record;
  work.records = b_.control_records;
  work.tag = TagOf(program, id);
  launches_[id].work = &RunControl;
  launches_[id].arg = &op;
  return BindLosses(program, id, work);
}

void LoweredProgram::BindTallies(const Program& program, int id,
                                 ControlOp& op) {
  const int64_t counts =
      b_.plan->model.device_counts.size() * program.microbatches;
  if (counts == 0) return;
  const std::vector<int> writers = WritersOf(program);
  const std::vector<int>& args = program.ops[id].args;
  for (int64_t i = args.size() - counts; i < args.size(); ++i) {
    CountsTally& tally = AddTally(program, args[i]);
    tally.unbounded = labels_[writers[args[i]]].c_str();
    op.tallies.push_back(&tally);
  }
}

// Where the losses of all microbatches lie, and what they weigh, in memory that
// the device reads.
absl::Status LoweredProgram::BindLosses(const Program& program, int id,
                                        fsdp::ControlWork& work) {
  const std::vector<int>& args = program.ops[id].args;
  const int64_t microbatches = b_.control_layout.microbatches;
  const std::vector<model::ExpertBiasDecl>& biases =
      b_.plan->model.expert_biases;
  const int64_t depth_losses = b_.control_layout.depths * microbatches;
  const int64_t router_losses =
      microbatches * b_.plan->model.router_losses.size();
  const int64_t all_losses = microbatches + depth_losses + router_losses;
  // Counts that the host reads come behind.
  const int64_t all = all_losses + biases.size();
  ASSIGN_OR_RETURN(const double** losses, host_.TakeArray<const double*>(all));
  ASSIGN_OR_RETURN(double* means, host_.TakeArray<double>(microbatches));
  ASSIGN_OR_RETURN(const double** by_microbatch,
                   host_.TakeArray<const double*>(router_losses));
  ASSIGN_OR_RETURN(double* objective, host_.TakeArray<double>(router_losses));
  for (int64_t i = 0; i < all; ++i) {
    losses[i] =
        reinterpret_cast<const double*>(Address(program.values[args[i]]));
  }
  std::fill_n(means, microbatches, 1.0 / microbatches);
  const std::vector<model::RouterLossDecl>& decls =
      b_.plan->model.router_losses;
  const double** of_routers = losses + microbatches + depth_losses;
  for (int64_t m = 0, at = 0; m < microbatches; ++m) {
    const double weight = b_.plan->shape.Of(m).router_loss_weight();
    for (size_t i = 0; i < decls.size(); ++i, ++at) {
      by_microbatch[at] = of_routers[i * microbatches + m];
      objective[at] = decls[i].coefficient * weight;
    }
  }
  std::vector<fsdp::CountsView>& counts = expert_counts_.emplace_back();
  for (size_t i = 0; i < biases.size(); ++i) {
    counts.push_back({losses[all_losses + i], biases[i].experts});
  }
  work.expert_counts = counts;
  work.losses = absl::MakeConstSpan(losses, microbatches);
  work.depth_losses = absl::MakeConstSpan(losses + microbatches, depth_losses);
  work.router_losses = absl::MakeConstSpan(of_routers, router_losses);
  work.mean_weights = absl::MakeConstSpan(means, microbatches);
  work.objective_losses = absl::MakeConstSpan(by_microbatch, router_losses);
  work.objective_weights = absl::MakeConstSpan(objective, router_losses);
  return absl::OkStatus();
}

void LoweredProgram::BindOptimizer(const Program& program, int id) {
  const int bucket = program.ops[id].bucket;
  optimizer_segments_.push_back(fsdp::OptimizerSegmentsOf(
      b_.parameters, b_.plan->units.buckets[bucket], *b_.buckets));
  for (fsdp::OptimizerSegment& segment : optimizer_segments_.back()) {
    if (b_.changed_bits == nullptr) break;
    segment.changed_bits = b_.changed_bits + segment.param;
  }
  OptimizerOp& op = optimizers_.emplace_back();
  op.buckets = b_.buckets;
  op.bucket = bucket;
  fsdp::OptimizerWork& work = op.update;
  work.segments = optimizer_segments_.back();
  work.settings = b_.optimizer;
  work.scalars = b_.scalars;
  launches_[id].work = &RunOptimizer;
  launches_[id].arg = &op;
}

absl::Status LoweredProgram::BindTap(const Program& program, int id) {
  const Op& op = program.ops[id];
  const schedule::Value& value = program.values[op.args[0]];
  const model::ValueDecl& decl = b_.plan->model.values[value.decl];
  TapWork& work = taps_.emplace_back();
  work.name = absl::StrCat(decl.name, "@", value.microbatch);
  work.decl = value.decl;
  work.dtype = decl.dtype;
  work.columns = decl.columns;
  work.rows = b_.plan->model.max_rows(value.decl, value.microbatch);
  work.value = Address(value);
  if (op.args.size() > 1) {
    work.shape = &b_.plan->shape;
    work.ep_rank = b_.plan->world.IndexOf(fsdp::Axis::kEp, b_.who.rank);
    work.counts =
        reinterpret_cast<const int32_t*>(Address(program.values[op.args[1]]));
    ASSIGN_OR_RETURN(
        work.counts_copy,
        host_.TakeArray<int32_t>(work.shape->ep * work.shape->experts));
  }
  ASSIGN_OR_RETURN(work.copy, host_.Take(TapCopyBytes(decl)));
  launches_[id].work = &RunTap;
  launches_[id].arg = &work;
  return absl::OkStatus();
}

std::byte* LoweredProgram::Address(const schedule::Value& value) const {
  const device::Buffer* arena =
      value.space == model::Space::kHost ? b_.host_arena : b_.arena;
  return arena->data() + value.offset;
}

device::ConstTensor LoweredProgram::ParamAddress(
    const Program& program, const schedule::ParamUse& use) const {
  const int64_t offset = b_.plan->units.offset_of_param[use.param];
  const int bucket = b_.plan->units.bucket_of_param[use.param];
  if (use.value < 0) return b_.buckets->node_weights(bucket).at(offset);
  const device::ConstTensor gathered = {Address(program.values[use.value]),
                                        b_.plan->units.buckets[bucket].dtype};
  return gathered + offset;
}

device::Tensor LoweredProgram::GradientValue(const Program& program,
                                             int value) const {
  const schedule::Value& v = program.values[value];
  return {Address(v), b_.plan->units.buckets[v.bucket].gradient_dtype};
}

device::Tensor LoweredProgram::GradAddress(const Program& program,
                                           const schedule::GradUse& use) const {
  const int64_t offset = b_.plan->units.offset_of_param[use.param];
  if (use.value < 0) {
    return b_.buckets->gradients(b_.plan->units.bucket_of_param[use.param])
        .at(offset);
  }
  return GradientValue(program, use.value) + offset;
}

comm::CollectiveTag LoweredProgram::TagOf(const Program& program,
                                          int id) const {
  const Op& op = program.ops[id];
  comm::CollectiveTag tag;
  tag.op = TagName(*b_.plan, op);
  tag.op_index = id;
  tag.layer = DecoderLayer(b_.plan->model, op.layer);
  tag.microbatch = op.microbatch;
  return tag;
}

absl::Status LoweredProgram::RunNode(void* arg, device::Stream& stream) {
  const NodeWork& work = *static_cast<const NodeWork*>(arg);
  if (work.exchanged_bytes == nullptr) return work.fn(work.ctx, stream);
  const int64_t before = work.ctx.ep->wire_bytes();
  RETURN_IF_ERROR(work.fn(work.ctx, stream));
  *work.exchanged_bytes += work.ctx.ep->wire_bytes() - before;
  return absl::OkStatus();
}

absl::Status LoweredProgram::RunGather(void* arg, device::Stream& stream) {
  return fsdp::Gather(*static_cast<const fsdp::GatherWork*>(arg), stream);
}

absl::Status LoweredProgram::RunRelease(void* arg, device::Stream& stream) {
  const ReleaseWork& work = *static_cast<const ReleaseWork*>(arg);
  if (*work.is_on) ops::Checksum(work.sum, stream);
  return absl::OkStatus();
}

absl::Status LoweredProgram::RunAdd(void* arg, device::Stream& stream) {
  fsdp::AddToSum(*static_cast<const fsdp::AddWork*>(arg), stream);
  return absl::OkStatus();
}

absl::Status LoweredProgram::RunReduceToShard(void* arg,
                                              device::Stream& stream) {
  return fsdp::ReduceToShard(*static_cast<const fsdp::ReduceWork*>(arg),
                             stream);
}

absl::Status LoweredProgram::RunReduceToOwnSlice(void* arg,
                                                 device::Stream& stream) {
  return fsdp::ReduceToOwnSlice(*static_cast<const fsdp::ReduceWork*>(arg),
                                stream);
}

absl::Status LoweredProgram::RunReduceInPlace(void* arg,
                                              device::Stream& stream) {
  return fsdp::ReduceInPlace(*static_cast<const fsdp::ReduceWork*>(arg),
                             stream);
}

absl::Status LoweredProgram::RunControl(void* arg, device::Stream& stream) {
  const ControlOp& op = *static_cast<const ControlOp*>(arg);
  RETURN_IF_ERROR(fsdp::ExchangeControl(op.exchange, stream));
  stream.CallHost(&FinishControl, arg);
  ops::CopyArgs copy;
  copy.count = sizeof(fsdp::OptimizerScalars) / sizeof(float);
  copy.x = reinterpret_cast<const float*>(op.bindings->host_scalars);
  copy.out = reinterpret_cast<float*>(op.bindings->scalars);
  ops::Copy(copy, stream);
  return absl::OkStatus();
}

void LoweredProgram::FinishControl(void* arg) {
  const ControlOp& op = *static_cast<const ControlOp*>(arg);
  absl::Status counts;
  for (CountsTally* tally : op.tallies) counts.Update(TallyCounts(tally));
  op.bindings->finish_control(op.bindings->finish_control_arg, counts);
}

absl::Status LoweredProgram::RunTap(void* arg, device::Stream& stream) {
  CopyTap(*static_cast<TapWork*>(arg), stream);
  return absl::OkStatus();
}

absl::Status LoweredProgram::RunOptimizer(void* arg, device::Stream& stream) {
  const OptimizerOp& op = *static_cast<const OptimizerOp*>(arg);
  fsdp::UpdateWeights(op.update, stream);
  fsdp::RoundWeights(*op.buckets, op.bucket, stream);
  return absl::OkStatus();
}

}  // namespace weft::exec

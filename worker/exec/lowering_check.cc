// What of each op's results a replay checks.
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "worker/exec/lowering.h"

namespace weft::exec {
namespace {

using schedule::Op;
using schedule::OpKind;
using schedule::Program;

bool IsFloat(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF64 || dtype == DType::kBf16;
}

}  // namespace

std::vector<CheckedRange> LoweredProgram::ValuesWrittenBy(
    const Program& program, const Op& op) const {
  const model::ModelDecl& model = b_.plan->model;
  const auto& args = model.node(op.layer, op.node).Find(op.phase)->args;
  std::vector<CheckedRange> ranges;
  for (size_t i = 0; i < args.size(); ++i) {
    const model::ValueDecl& decl = model.values[args[i].value];
    if (args[i].access != model::Access::kWrite || !IsFloat(decl.dtype)) {
      continue;
    }
    CheckedRange& range = ranges.emplace_back();
    range.id = args[i].value;
    range.dtype = decl.dtype;
    range.data = Address(program.values[op.args[i]]);
    range.count = model.max_rows(range.id, op.microbatch) * decl.columns;
    range.columns = decl.columns;
    for (size_t j = 0; j < args.size(); ++j) {
      const std::byte* const at =
          op.args[j] < 0 ? nullptr : Address(program.values[op.args[j]]);
      if (args[j].value == decl.counts) {
        range.counts = reinterpret_cast<const int32_t*>(at);
      } else if (args[j].value == decl.offsets) {
        range.row_count = reinterpret_cast<const int64_t*>(at) +
                          model.values[decl.offsets].columns - 1;
      }
    }
  }
  return ranges;
}

std::vector<CheckedRange> LoweredProgram::GradientsWrittenBy(
    const Program& program, const Op& op) const {
  std::vector<CheckedRange> ranges;
  for (const schedule::GradUse& use : op.grads) {
    CheckedRange& range = ranges.emplace_back();
    range.what = Checked::kGradient;
    range.id = use.param;
    const device::Tensor gradient = GradAddress(program, use);
    range.dtype = gradient.dtype;
    range.data = gradient.data;
    range.count = b_.plan->model.params[use.param].local_elements();
    range.begin = b_.parameters[use.param].global_begin;
  }
  return ranges;
}

std::vector<CheckedRange> LoweredProgram::WrittenBy(const Program& program,
                                                    const Op& op) const {
  if (op.kind == OpKind::kNode) {
    std::vector<CheckedRange> ranges = ValuesWrittenBy(program, op);
    for (CheckedRange& range : GradientsWrittenBy(program, op)) {
      ranges.push_back(range);
    }
    return ranges;
  }
  if (op.bucket < 0) return {};
  const fsdp::Bucket& bucket = b_.plan->units.buckets[op.bucket];
  if (op.kind == OpKind::kGather) {
    fsdp::BucketView whole;
    whole.data = {Address(program.values[op.args.front()]), bucket.dtype};
    whole.range = {0, bucket.elements};
    return PartsOf(Checked::kParameter, bucket, whole, b_.parameters);
  }
  if (op.kind == OpKind::kAdd) {
    return PartsOf(Checked::kGradient, bucket, b_.buckets->gradients(op.bucket),
                   b_.parameters);
  }
  if (op.kind == OpKind::kReduce) {
    // Reduced is all of it where the optimizer updates all of it.
    const bool whole = program.strategy == fsdp::Strategy::kNoShard;
    const fsdp::BucketView& held = b_.buckets->gradients(op.bucket);
    const fsdp::Range slice = b_.buckets->slice(op.bucket);
    return PartsOf(Checked::kGradient, bucket,
                   whole ? held : fsdp::BucketView{held.at(slice.begin), slice},
                   b_.parameters);
  }
  return {};
}

absl::Status LoweredProgram::BindFiniteChecks(const Program& program) {
  for (const Op& op : program.ops) {
    FiniteCheck& check = finite_checks_.emplace_back();
    check.ranges = WrittenBy(program, op);
    check.shape = &b_.plan->shape;
    check.ep_rank = b_.plan->world.IndexOf(fsdp::Axis::kEp, b_.who.rank);
  }
  RETURN_IF_ERROR(MakeRoom(host_, finite_checks_));
  for (size_t id = 0; id < finite_checks_.size(); ++id) {
    if (finite_checks_[id].ranges.empty()) continue;
    launches_[id].after = &RunFiniteCheck;
    launches_[id].after_arg = &finite_checks_[id];
  }
  return absl::OkStatus();
}

std::optional<Finding> LoweredProgram::FirstNonFinite() const {
  for (size_t id = 0; id < finite_checks_.size(); ++id) {
    if (auto finding = FirstOf(finite_checks_[id], id)) return finding;
  }
  return std::nullopt;
}

}  // namespace weft::exec

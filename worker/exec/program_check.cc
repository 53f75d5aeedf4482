#include "worker/exec/program_check.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "model/decoder.h"

namespace weft::exec {
namespace {

using schedule::Op;
using schedule::OpKind;
using schedule::Plan;
using schedule::Program;
using schedule::Value;
using schedule::ValueKind;

absl::Status OpError(int id, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("op ", id, ": ", what));
}

template <typename T>
bool InRange(int index, const std::vector<T>& of) {
  return index >= 0 && index < of.size();
}

absl::Status CheckValue(const Program& program, const Plan& plan, int id) {
  const Value& value = program.values[id];
  int64_t bytes = 0;
  if (value.kind == ValueKind::kActivation) {
    if (!InRange(value.decl, plan.model.values)) {
      return absl::InvalidArgumentError(
          absl::StrCat("value ", id, ": no declared value ", value.decl));
    }
    const model::ValueDecl& decl = plan.model.values[value.decl];
    if (decl.space != value.space) {
      return absl::InvalidArgumentError(
          absl::StrCat("value ", id, " (", decl.name, "): wrong space"));
    }
    bytes = decl.max_bytes();
  } else {
    if (!InRange(value.bucket, plan.units.buckets)) {
      return absl::InvalidArgumentError(
          absl::StrCat("value ", id, ": no bucket ", value.bucket));
    }
    const fsdp::Bucket& bucket = plan.units.buckets[value.bucket];
    bytes = bucket.elements * SizeOf(bucket.dtype);
  }
  if (value.bytes != bytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "value ", id, ": ", value.bytes, " bytes, but the model says ", bytes));
  }
  const int64_t arena = value.space == model::Space::kHost
                            ? program.host_arena_bytes
                            : program.arena_bytes;
  if (arena < 0 || value.offset < 0 || value.offset % 64 != 0 ||
      value.bytes > arena || value.offset > arena - value.bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("value ", id, ": ", value.bytes, " bytes at offset ",
                     value.offset, " of an arena of ", arena));
  }
  return absl::OkStatus();
}

// Finds the declared phase of a node op.
absl::StatusOr<const model::PhaseDecl*> PhaseOf(const Plan& plan, const Op& op,
                                                int id) {
  if (!InRange(op.layer, plan.model.layers) ||
      !InRange(op.node, plan.model.layers[op.layer].nodes)) {
    return OpError(id,
                   absl::StrCat("no node ", op.node, " in layer ", op.layer));
  }
  const model::PhaseDecl* phase =
      plan.model.node(op.layer, op.node).Find(op.phase);
  if (phase == nullptr) return OpError(id, "the node has no such phase");
  return phase;
}

absl::Status CheckMicrobatch(const Program& program, int id) {
  const int microbatch = program.ops[id].microbatch;
  if (microbatch >= 0 && microbatch < program.microbatches) {
    return absl::OkStatus();
  }
  return OpError(id, absl::StrCat("microbatch ", microbatch, " of ",
                                  program.microbatches));
}

// A communicator and what it stages in belong to one stream.
absl::Status CheckStream(const Op& op, int id, schedule::StreamKind expected) {
  if (op.stream == expected) return absl::OkStatus();
  return OpError(id, absl::StrCat("on stream ", schedule::Name(op.stream),
                                  ", not ", schedule::Name(expected)));
}

absl::Status CheckNode(const Program& program, const Plan& plan, int id) {
  const Op& op = program.ops[id];
  ASSIGN_OR_RETURN(const model::PhaseDecl* phase, PhaseOf(plan, op, id));
  RETURN_IF_ERROR(CheckMicrobatch(program, id));
  RETURN_IF_ERROR(
      CheckStream(op, id,
                  phase->resource == model::Resource::kExpertParallel
                      ? schedule::StreamKind::kEp
                      : schedule::StreamKind::kCompute));
  if (op.args.size() != phase->args.size() ||
      op.params.size() != phase->params_read.size() ||
      op.grads.size() != phase->grads_written.size()) {
    return OpError(
        id, absl::StrCat(op.args.size(), " args, ", op.params.size(),
                         " params and ", op.grads.size(), " grads, not ",
                         phase->args.size(), ", ", phase->params_read.size(),
                         " and ", phase->grads_written.size()));
  }
  for (int i = 0; i < op.args.size(); ++i) {
    const Value& value = program.values[op.args[i]];
    if (value.kind != ValueKind::kActivation ||
        value.decl != phase->args[i].value ||
        value.microbatch != op.microbatch) {
      return OpError(id, absl::StrCat("arg ", i, " is value ", op.args[i],
                                      ", not the one declared"));
    }
  }
  for (int i = 0; i < op.params.size(); ++i) {
    if (op.params[i].param != phase->params_read[i]) {
      return OpError(id, absl::StrCat("param ", i, " is not the declared one"));
    }
  }
  for (int i = 0; i < op.grads.size(); ++i) {
    if (op.grads[i].param != phase->grads_written[i]) {
      return OpError(id, absl::StrCat("grad ", i, " is not the declared one"));
    }
  }
  return absl::OkStatus();
}

// Params and grads that lie in values lie in values of their bucket, and the
// others in buckets that are resident.
absl::Status CheckBucketUses(const Program& program, const Plan& plan, int id) {
  const Op& op = program.ops[id];
  auto check = [&](int param, int value, ValueKind kind, bool resident) {
    const int bucket = plan.units.bucket_of_param[param];
    if (value < 0) {
      return resident ? absl::OkStatus()
                      : OpError(id, absl::StrCat("param ", param,
                                                 " is not resident"));
    }
    if (!InRange(value, program.values) || program.values[value].kind != kind ||
        program.values[value].bucket != bucket) {
      return OpError(
          id, absl::StrCat("value ", value, " does not hold param ", param));
    }
    return absl::OkStatus();
  };
  for (const schedule::ParamUse& use : op.params) {
    const fsdp::Bucket& bucket =
        plan.units.buckets[plan.units.bucket_of_param[use.param]];
    RETURN_IF_ERROR(check(use.param, use.value, ValueKind::kGathered,
                          schedule::WeightsResident(program.strategy, bucket)));
  }
  for (const schedule::GradUse& use : op.grads) {
    RETURN_IF_ERROR(check(use.param, use.value, ValueKind::kGradient,
                          schedule::GradientsResident(program.strategy)));
  }
  return absl::OkStatus();
}

absl::Status CheckBucketOp(const Program& program, const Plan& plan, int id) {
  const Op& op = program.ops[id];
  if (!InRange(op.bucket, plan.units.buckets)) {
    return OpError(id, absl::StrCat("no bucket ", op.bucket));
  }
  const bool gathers =
      op.kind == OpKind::kGather || op.kind == OpKind::kRelease;
  RETURN_IF_ERROR(CheckStream(op, id,
                              gathers ? schedule::StreamKind::kGather
                              : op.kind == OpKind::kOptimizer
                                  ? schedule::StreamKind::kCompute
                                  : schedule::StreamKind::kReduce));
  const bool needs_value = gathers || op.kind == OpKind::kAdd;
  if (op.args.size() > 1 || (needs_value && op.args.empty())) {
    return OpError(id, absl::StrCat(op.args.size(), " args"));
  }
  const ValueKind kind = gathers ? ValueKind::kGathered : ValueKind::kGradient;
  for (int value : op.args) {
    if (program.values[value].kind != kind ||
        program.values[value].bucket != op.bucket) {
      return OpError(
          id, absl::StrCat("value ", value, " is not of bucket ", op.bucket));
    }
  }
  const bool needs_resident = op.kind == OpKind::kAdd ||
                              (op.kind == OpKind::kReduce && op.args.empty());
  if (needs_resident && !schedule::GradientsResident(program.strategy)) {
    return OpError(id, "uses a gradient that is not resident");
  }
  return absl::OkStatus();
}

// Whether value `id` is the instance of `decl` of a microbatch.
bool IsActivation(const Program& program, int id, int decl, int microbatch) {
  const Value& value = program.values[id];
  return value.kind == ValueKind::kActivation && value.decl == decl &&
         value.microbatch == microbatch;
}

// The host waits for counts only, and reads the matrix that was written.
absl::Status CheckHostWait(const Program& program, const Plan& plan, int id) {
  const Op& op = program.ops[id];
  ASSIGN_OR_RETURN(const model::PhaseDecl* phase, PhaseOf(plan, op, id));
  RETURN_IF_ERROR(CheckMicrobatch(program, id));
  const model::NodeDecl& node = plan.model.node(op.layer, op.node);
  if (node.kind != model::NodeKind::kCounts || op.args.size() != 1 ||
      !IsActivation(program, op.args[0], phase->args[model::counts::kAll].value,
                    op.microbatch)) {
    return OpError(id, "waits for something that is not the counts matrix");
  }
  return absl::OkStatus();
}

absl::Status CheckControl(const Program& program, const Plan& plan, int id) {
  const Op& op = program.ops[id];
  RETURN_IF_ERROR(CheckStream(op, id, schedule::StreamKind::kReduce));
  if (op.args.size() != program.microbatches) {
    return OpError(id, absl::StrCat(op.args.size(), " losses of ",
                                    program.microbatches, " microbatches"));
  }
  for (int m = 0; m < program.microbatches; ++m) {
    if (!IsActivation(program, op.args[m], plan.model.loss_value, m)) {
      return OpError(id, absl::StrCat("arg ", m, " is value ", op.args[m],
                                      ", not the loss of microbatch ", m));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckOp(const Program& program, const Plan& plan, int id) {
  const Op& op = program.ops[id];
  for (int value : op.args) {
    if (!InRange(value, program.values)) {
      return OpError(id, absl::StrCat("no value ", value));
    }
  }
  for (int wait : op.waits) {
    if (wait < 0 || wait >= id) {
      return OpError(id, absl::StrCat("waits for op ", wait));
    }
  }
  switch (op.kind) {
    case OpKind::kNode:
      RETURN_IF_ERROR(CheckNode(program, plan, id));
      return CheckBucketUses(program, plan, id);
    case OpKind::kHostWait:
      return CheckHostWait(program, plan, id);
    case OpKind::kControl:
      return CheckControl(program, plan, id);
    default:
      return CheckBucketOp(program, plan, id);
  }
}

}  // namespace

absl::Status CheckProgram(const Program& program, const Plan& plan) {
  if (program.microbatches != plan.shape.microbatches) {
    return absl::InvalidArgumentError(
        absl::StrCat("the program has ", program.microbatches,
                     " microbatches, the job ", plan.shape.microbatches));
  }
  for (int id = 0; id < program.values.size(); ++id) {
    RETURN_IF_ERROR(CheckValue(program, plan, id));
  }
  for (int id = 0; id < program.ops.size(); ++id) {
    RETURN_IF_ERROR(CheckOp(program, plan, id));
  }
  return absl::OkStatus();
}

}  // namespace weft::exec

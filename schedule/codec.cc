#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"
#include "schedule/plan.h"
#include "schedule/verifier.h"

namespace weft::schedule {
namespace {

template <typename... Args>
absl::Status Invalid(const Args&... args) {
  return absl::InvalidArgumentError(absl::StrCat("program: ", args...));
}

plan::v1::Op OpToProto(const Op& op, int id) {
  plan::v1::Op proto;
  proto.set_kind(static_cast<int>(op.kind));
  proto.set_stream(static_cast<int>(op.stream));
  proto.set_layer(op.layer + 1);
  proto.set_node(op.node + 1);
  proto.set_phase(static_cast<int>(op.phase));
  proto.set_microbatch(op.microbatch + 1);
  proto.set_bucket(op.bucket + 1);
  proto.set_accumulate(op.accumulate);
  for (int value : op.args) proto.add_args(value);
  for (const ParamUse& use : op.params) {
    proto.add_params(use.param);
    proto.add_param_values(use.value + 1);
  }
  for (const GradUse& use : op.grads) {
    proto.add_grads(use.param);
    proto.add_grad_values(use.value + 1);
    proto.add_grad_accumulates(use.accumulate);
  }
  for (int wait : op.waits) proto.add_wait_distances(id - wait);
  return proto;
}

// An enum from the wire, at most `last`. `where` names the message.
template <typename E>
absl::Status ReadEnum(int number, E last, absl::string_view where,
                      const char* field, E& out) {
  if (number < 0 || number > static_cast<int>(last)) {
    return Invalid(where, field, "=", number, " is not in [0, ",
                   static_cast<int>(last), "]");
  }
  out = static_cast<E>(number);
  return absl::OkStatus();
}

// An index that travels plus one, 0 meaning none.
absl::Status ReadIndex(int number, absl::string_view where, const char* field,
                       int& out) {
  if (number < 0) return Invalid(where, field, "=", number, " is negative");
  out = number - 1;
  return absl::OkStatus();
}

absl::Status ReadUses(const plan::v1::Op& proto, absl::string_view where,
                      Op& op) {
  if (proto.params_size() != proto.param_values_size()) {
    return Invalid(where, proto.params_size(), " params but ",
                   proto.param_values_size(), " param_values");
  }
  if (proto.grads_size() != proto.grad_values_size() ||
      proto.grads_size() != proto.grad_accumulates_size()) {
    return Invalid(where, proto.grads_size(), " grads but ",
                   proto.grad_values_size(), " grad_values and ",
                   proto.grad_accumulates_size(), " grad_accumulates");
  }
  for (int i = 0; i < proto.params_size(); ++i) {
    ParamUse use;
    use.param = proto.params(i);
    RETURN_IF_ERROR(
        ReadIndex(proto.param_values(i), where, "param_values", use.value));
    op.params.push_back(use);
  }
  for (int i = 0; i < proto.grads_size(); ++i) {
    GradUse use;
    use.param = proto.grads(i);
    use.accumulate = proto.grad_accumulates(i);
    RETURN_IF_ERROR(
        ReadIndex(proto.grad_values(i), where, "grad_values", use.value));
    op.grads.push_back(use);
  }
  return absl::OkStatus();
}

absl::StatusOr<Op> OpFromProto(const plan::v1::Op& proto, int id) {
  const std::string where = absl::StrCat("op ", id, ": ");
  Op op;
  RETURN_IF_ERROR(
      ReadEnum(proto.kind(), OpKind::kOptimizer, where, "kind", op.kind));
  RETURN_IF_ERROR(ReadEnum(proto.stream(), StreamKind::kReduce, where, "stream",
                           op.stream));
  RETURN_IF_ERROR(
      ReadEnum(proto.phase(), model::Phase::kWgrad, where, "phase", op.phase));
  RETURN_IF_ERROR(ReadIndex(proto.layer(), where, "layer", op.layer));
  RETURN_IF_ERROR(ReadIndex(proto.node(), where, "node", op.node));
  RETURN_IF_ERROR(
      ReadIndex(proto.microbatch(), where, "microbatch", op.microbatch));
  RETURN_IF_ERROR(ReadIndex(proto.bucket(), where, "bucket", op.bucket));
  op.accumulate = proto.accumulate();
  op.args.assign(proto.args().begin(), proto.args().end());
  RETURN_IF_ERROR(ReadUses(proto, where, op));
  for (int distance : proto.wait_distances()) {
    if (distance < 1 || distance > id) {
      return Invalid(where, "wait_distances=", distance, " is not in [1, ", id,
                     "]");
    }
    op.waits.push_back(id - distance);
  }
  return op;
}

absl::StatusOr<Value> ValueFromProto(const plan::v1::Value& proto, int id) {
  const std::string where = absl::StrCat("value ", id, ": ");
  Value value;
  RETURN_IF_ERROR(
      ReadEnum(proto.kind(), ValueKind::kGradient, where, "kind", value.kind));
  RETURN_IF_ERROR(ReadEnum(proto.space(), model::Space::kHost, where, "space",
                           value.space));
  RETURN_IF_ERROR(ReadIndex(proto.decl(), where, "decl", value.decl));
  RETURN_IF_ERROR(ReadIndex(proto.bucket(), where, "bucket", value.bucket));
  RETURN_IF_ERROR(
      ReadIndex(proto.microbatch(), where, "microbatch", value.microbatch));
  value.bytes = proto.bytes();
  value.offset = proto.offset();
  return value;
}

}  // namespace

plan::v1::Program ToProto(const Program& program) {
  plan::v1::Program proto;
  proto.set_kind(static_cast<int>(program.kind));
  proto.set_microbatches(program.microbatches);
  proto.set_strategy(static_cast<int>(program.strategy));
  for (int id = 0; id < program.ops.size(); ++id) {
    *proto.add_ops() = OpToProto(program.ops[id], id);
  }
  for (const Value& value : program.values) {
    plan::v1::Value* out = proto.add_values();
    out->set_kind(static_cast<int>(value.kind));
    out->set_decl(value.decl + 1);
    out->set_bucket(value.bucket + 1);
    out->set_microbatch(value.microbatch + 1);
    out->set_space(static_cast<int>(value.space));
    out->set_bytes(value.bytes);
    out->set_offset(value.offset);
  }
  proto.set_arena_bytes(program.arena_bytes);
  proto.set_host_arena_bytes(program.host_arena_bytes);
  return proto;
}

absl::StatusOr<Program> FromProto(const plan::v1::Program& proto,
                                  const Plan& declared) {
  Program program;
  RETURN_IF_ERROR(
      ReadEnum(proto.kind(), ProgramKind::kEval, "", "kind", program.kind));
  RETURN_IF_ERROR(ReadEnum(proto.strategy(), fsdp::Strategy::kOptimGradsParams,
                           "", "strategy", program.strategy));
  if (program.strategy != declared.strategy) {
    return Invalid("strategy=", fsdp::Name(program.strategy), ", the job has ",
                   fsdp::Name(declared.strategy));
  }
  program.microbatches = proto.microbatches();
  if (program.microbatches != declared.shape.microbatches) {
    return Invalid("microbatches=", program.microbatches, ", the job has ",
                   declared.shape.microbatches);
  }
  program.arena_bytes = proto.arena_bytes();
  program.host_arena_bytes = proto.host_arena_bytes();
  for (int id = 0; id < proto.values_size(); ++id) {
    ASSIGN_OR_RETURN(Value value, ValueFromProto(proto.values(id), id));
    program.values.push_back(value);
  }
  for (int id = 0; id < proto.ops_size(); ++id) {
    ASSIGN_OR_RETURN(Op op, OpFromProto(proto.ops(id), id));
    program.ops.push_back(std::move(op));
  }
  // The proofs also show that every index is in range.
  const absl::Status sound =
      VerifyProgram(program, declared.model, declared.units);
  if (!sound.ok()) return Invalid(sound.message());
  return program;
}

plan::v1::UnitAssignment ToProto(const fsdp::UnitAssignment& units) {
  plan::v1::UnitAssignment proto;
  proto.set_hash(units.Hash());
  for (const fsdp::Unit& unit : units.units) {
    plan::v1::Unit* out = proto.add_units();
    out->set_name(unit.name);
    out->set_root(unit.root);
    for (int bucket : unit.buckets) out->add_buckets(bucket);
  }
  for (const fsdp::Bucket& bucket : units.buckets) {
    plan::v1::Bucket* out = proto.add_buckets();
    out->set_axis(static_cast<int>(bucket.axis));
    out->set_group_size(bucket.group_size);
    out->set_dtype(static_cast<int>(bucket.dtype));
    out->set_elements(bucket.elements);
    for (const fsdp::Placement& placement : bucket.placements) {
      out->add_params(placement.param);
      out->add_offsets(placement.offset);
    }
  }
  return proto;
}

plan::v1::Binding ToProto(const Binding& binding) {
  plan::v1::Binding proto;
  proto.set_rank(binding.rank);
  proto.set_world(binding.world.size);
  proto.set_ep(binding.world.ep);
  return proto;
}

absl::StatusOr<Binding> FromProto(const plan::v1::Binding& proto) {
  auto invalid = [](const auto&... args) {
    return absl::InvalidArgumentError(absl::StrCat("binding: ", args...));
  };
  if (proto.world() < 1) {
    return invalid("world=", proto.world(), " is not positive");
  }
  if (proto.rank() < 0 || proto.rank() >= proto.world()) {
    return invalid("rank=", proto.rank(), " is not in [0, ", proto.world(),
                   ")");
  }
  if (proto.ep() < 1 || proto.world() % proto.ep() != 0) {
    return invalid("ep=", proto.ep(), " does not divide world=", proto.world());
  }
  return Binding{proto.rank(), {proto.world(), proto.ep()}};
}

}  // namespace weft::schedule

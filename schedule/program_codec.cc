#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

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

constexpr int64_t kOffsetUnit = 64;  // bytes

// Values a node op exchanges with others unless it says otherwise.
class DeclaredArgs {
 public:
  explicit DeclaredArgs(const std::vector<Value>& values) {
    for (int id = 0; id < values.size(); ++id) {
      if (values[id].kind != ValueKind::kActivation) continue;
      ids_.insert({{values[id].decl, values[id].microbatch}, id});
    }
  }

  // The args of a phase; -1 for one that has no value.
  std::vector<int> Of(const model::PhaseDecl& phase, int microbatch) const {
    std::vector<int> args;
    for (const model::Arg& arg : phase.args) {
      const auto it = ids_.find({arg.value, arg.InstanceOf(microbatch)});
      args.push_back(it == ids_.end() ? -1 : it->second);
    }
    return args;
  }

 private:
  std::map<std::pair<int, int>, int> ids_;  // (declaration, microbatch) -> id
};

// Adds a value that is none of those there.
void AddDistinct(int value, google::protobuf::RepeatedField<int32_t>* to) {
  if (value < 0 || std::find(to->begin(), to->end(), value) != to->end()) {
    return;
  }
  to->Add(value);
}

plan::v1::Op OpToProto(const Op& op, int id, const model::ModelDecl& model,
                       const DeclaredArgs& declared) {
  plan::v1::Op proto;
  proto.set_kind(static_cast<int>(op.kind));
  proto.set_stream(static_cast<int>(op.stream));
  proto.set_layer(op.layer + 1);
  proto.set_node(op.node + 1);
  proto.set_phase(static_cast<int>(op.phase));
  proto.set_microbatch(op.microbatch + 1);
  proto.set_bucket(op.bucket + 1);
  proto.set_accumulate(op.accumulate);
  const bool implied =
      op.kind == OpKind::kNode &&
      op.args == declared.Of(*model.node(op.layer, op.node).Find(op.phase),
                             op.microbatch);
  if (!implied) proto.mutable_args()->Add(op.args.begin(), op.args.end());
  for (const ParamUse& use : op.params) {
    AddDistinct(use.value, proto.mutable_gathered());
  }
  bool accumulates = false;
  for (const GradUse& use : op.grads) {
    AddDistinct(use.value, proto.mutable_gradients());
    accumulates |= use.accumulate;
  }
  if (accumulates) {
    for (const GradUse& use : op.grads) {
      proto.add_grad_accumulates(use.accumulate);
    }
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

// Puts a program together from the wire and what the job declares. Checks what
// it needs to index; the rest is for the verifier.
class Decoder {
 public:
  Decoder(const plan::v1::Program& proto, const Plan& declared)
      : proto_(proto),
        model_(declared.model),
        units_(declared.units),
        microbatches_(declared.shape.microbatches) {}

  absl::Status Run(Program& program) {
    RETURN_IF_ERROR(ReadValues(program.values));
    values_ = &program.values;
    const DeclaredArgs declared(program.values);
    for (int id = 0; id < proto_.ops_size(); ++id) {
      ASSIGN_OR_RETURN(Op op, ReadOp(proto_.ops(id), id, declared));
      program.ops.push_back(std::move(op));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status ReadValues(std::vector<Value>& values) const {
    const plan::v1::Values& columns = proto_.values();
    const int count = columns.kinds_size();
    if (columns.holds_size() != count || columns.microbatches_size() != count ||
        columns.offsets_size() != count) {
      return Invalid("values: ", count, " kinds but ", columns.holds_size(),
                     " holds, ", columns.microbatches_size(),
                     " microbatches and ", columns.offsets_size(), " offsets");
    }
    for (int id = 0; id < count; ++id) {
      ASSIGN_OR_RETURN(Value value, ReadValue(columns, id));
      values.push_back(value);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Value> ReadValue(const plan::v1::Values& columns,
                                  int id) const {
    const std::string where = absl::StrCat("value ", id, ": ");
    Value value;
    RETURN_IF_ERROR(ReadEnum(columns.kinds(id), ValueKind::kGradient, where,
                             "kind", value.kind));
    RETURN_IF_ERROR(ReadIndex(columns.microbatches(id), where, "microbatch",
                              value.microbatch));
    const int64_t offset = columns.offsets(id);
    if (offset < 0 ||
        offset > std::numeric_limits<int64_t>::max() / kOffsetUnit) {
      return Invalid(where, "offset=", offset, " is not in [0, 2^57)");
    }
    value.offset = offset * kOffsetUnit;
    const bool activation = value.kind == ValueKind::kActivation;
    const int holds = columns.holds(id);
    const int known = activation ? model_.values.size() : units_.buckets.size();
    if (holds < 0 || holds >= known) {
      return Invalid(where, "holds=", holds, " is not in [0, ", known, ")");
    }
    if (activation) {
      value.decl = holds;
      value.space = model_.values[holds].space;
      if (value.microbatch < 0 || value.microbatch >= microbatches_) {
        return Invalid(where, "microbatch=", columns.microbatches(id),
                       " is not in [1, ", microbatches_, "]");
      }
      value.bytes = model_.max_bytes(holds, value.microbatch);
    } else {
      value.bucket = holds;
      const fsdp::Bucket& bucket = units_.buckets[holds];
      value.bytes = value.kind == ValueKind::kGradient ? bucket.gradient_bytes()
                                                       : bucket.weight_bytes();
    }
    return value;
  }

  absl::StatusOr<Op> ReadOp(const plan::v1::Op& proto, int id,
                            const DeclaredArgs& declared) const {
    const std::string where = absl::StrCat("op ", id, ": ");
    Op op;
    RETURN_IF_ERROR(
        ReadEnum(proto.kind(), OpKind::kTap, where, "kind", op.kind));
    RETURN_IF_ERROR(ReadEnum(proto.stream(), StreamKind::kReduce, where,
                             "stream", op.stream));
    RETURN_IF_ERROR(ReadEnum(proto.phase(), model::Phase::kRecompute, where,
                             "phase", op.phase));
    RETURN_IF_ERROR(ReadIndex(proto.layer(), where, "layer", op.layer));
    RETURN_IF_ERROR(ReadIndex(proto.node(), where, "node", op.node));
    RETURN_IF_ERROR(
        ReadIndex(proto.microbatch(), where, "microbatch", op.microbatch));
    RETURN_IF_ERROR(ReadIndex(proto.bucket(), where, "bucket", op.bucket));
    op.accumulate = proto.accumulate();
    op.args.assign(proto.args().begin(), proto.args().end());
    if (op.kind == OpKind::kNode) {
      RETURN_IF_ERROR(ReadNode(proto, where, declared, op));
    }
    for (int distance : proto.wait_distances()) {
      if (distance < 1 || distance > id) {
        return Invalid(where, "wait_distances=", distance, " is not in [1, ",
                       id, "]");
      }
      op.waits.push_back(id - distance);
    }
    return op;
  }

  // What a node reads and writes by declaration.
  absl::Status ReadNode(const plan::v1::Op& proto, const std::string& where,
                        const DeclaredArgs& declared, Op& op) const {
    const bool known = Has(model_.layers, op.layer) &&
                       Has(model_.layers[op.layer].nodes, op.node);
    const model::PhaseDecl* phase =
        known ? model_.node(op.layer, op.node).Find(op.phase) : nullptr;
    if (phase == nullptr) {
      return Invalid(where, "layer=", proto.layer(), ", node=", proto.node(),
                     ", phase=", proto.phase(), " is no phase of the model");
    }
    if (op.args.empty()) op.args = declared.Of(*phase, op.microbatch);
    RETURN_IF_ERROR(CheckValues(proto.gathered(), where, "gathered"));
    RETURN_IF_ERROR(CheckValues(proto.gradients(), where, "gradients"));
    for (int param : phase->params_read) {
      op.params.push_back({param, ValueOf(param, proto.gathered())});
    }
    const int grads = phase->grads_written.size();
    if (proto.grad_accumulates_size() != 0 &&
        proto.grad_accumulates_size() != grads) {
      return Invalid(where, proto.grad_accumulates_size(),
                     " grad_accumulates for ", grads, " gradients");
    }
    for (int i = 0; i < grads; ++i) {
      const int param = phase->grads_written[i];
      const bool accumulate =
          proto.grad_accumulates_size() != 0 && proto.grad_accumulates(i);
      op.grads.push_back(
          {param, ValueOf(param, proto.gradients()), accumulate});
    }
    return absl::OkStatus();
  }

  absl::Status CheckValues(
      const google::protobuf::RepeatedField<int32_t>& values,
      const std::string& where, const char* field) const {
    for (int value : values) {
      if (!Has(*values_, value)) {
        return Invalid(where, field, "=", value, " is not in [0, ",
                       values_->size(), ")");
      }
    }
    return absl::OkStatus();
  }

  // That of `values` which holds the bucket of a parameter; -1: none does.
  int ValueOf(int param,
              const google::protobuf::RepeatedField<int32_t>& values) const {
    for (int value : values) {
      if ((*values_)[value].bucket == units_.bucket_of_param[param]) {
        return value;
      }
    }
    return -1;
  }

  template <typename T>
  static bool Has(const std::vector<T>& of, int index) {
    return index >= 0 && index < of.size();
  }

  const plan::v1::Program& proto_;
  const model::ModelDecl& model_;
  const fsdp::UnitAssignment& units_;
  const int microbatches_;
  const std::vector<Value>* values_ = nullptr;
};

}  // namespace

plan::v1::Program ToProto(const Plan& plan, const Program& program) {
  plan::v1::Program proto;
  proto.set_kind(static_cast<int>(program.kind));
  proto.set_microbatches(program.microbatches);
  proto.set_strategy(static_cast<int>(program.strategy));
  const DeclaredArgs declared(program.values);
  for (int id = 0; id < program.ops.size(); ++id) {
    *proto.add_ops() = OpToProto(program.ops[id], id, plan.model, declared);
  }
  plan::v1::Values& values = *proto.mutable_values();
  for (const Value& value : program.values) {
    values.add_kinds(static_cast<int>(value.kind));
    values.add_holds(value.decl >= 0 ? value.decl : value.bucket);
    values.add_microbatches(value.microbatch + 1);
    values.add_offsets(value.offset / kOffsetUnit);
  }
  proto.set_arena_bytes(program.arena_bytes);
  proto.set_host_arena_bytes(program.host_arena_bytes);
  proto.set_buffer_slots(program.buffer_slots);
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
  program.buffer_slots = proto.buffer_slots();
  if (program.buffer_slots != declared.buffer_slots) {
    return Invalid("buffer_slots=", program.buffer_slots, ", the job has ",
                   declared.buffer_slots);
  }
  program.arena_bytes = proto.arena_bytes();
  program.host_arena_bytes = proto.host_arena_bytes();
  RETURN_IF_ERROR(Decoder(proto, declared).Run(program));
  // The proofs also show that every index is in range.
  const absl::Status sound =
      VerifyProgram(program, declared.model, declared.units);
  if (!sound.ok()) return Invalid(sound.message());
  return program;
}

}  // namespace weft::schedule

#include "schedule/testing/mutants.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace weft::schedule {
namespace {

// The latest op ahead of `id` on its stream; -1: none.
int Ahead(const Program& program, int id) {
  for (int other = id - 1; other >= 0; --other) {
    const Op& op = program.ops[other];
    if (op.kind != OpKind::kHostWait && op.stream == program.ops[id].stream) {
      return other;
    }
  }
  return -1;
}

void Unique(std::vector<int>& ids) {
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
}

class Mutator {
 public:
  Mutator(const Program& program, const model::ModelDecl& model,
          const fsdp::UnitAssignment& units,
          const std::function<bool()>& chosen,
          const std::function<void(const Mutant&)>& fn)
      : program_(program),
        model_(model),
        units_(units),
        chosen_(chosen),
        fn_(fn) {}

  void Run() {
    for (int id = 0; id < program_.ops.size(); ++id) {
      Drop(id);
      Move(id);
      Waits(id);
      Values(id);
      Places(id);
      Accumulates(id);
    }
    for (int v = 0; v < program_.values.size(); ++v) Offsets(v);
  }

 private:
  template <typename Edit>
  void Emit(MutantClass kind, const std::string& what, Edit edit) {
    if (!chosen_()) return;
    Mutant mutant{kind, what, program_};
    edit(mutant.program);
    fn_(mutant);
  }

  template <typename Edit>
  void EmitOp(MutantClass kind, int id, const std::string& what, Edit edit) {
    Emit(kind, absl::StrCat("op ", id, ": ", what),
         [&](Program& program) { edit(program.ops[id]); });
  }

  void Drop(int id) {
    Emit(MutantClass::kDropOp, absl::StrCat("op ", id, ": dropped"),
         [&](Program& program) { DropOp(program, id, /*inherit=*/true); });
    Emit(MutantClass::kDropOpAndWaits,
         absl::StrCat("op ", id, ": dropped, nothing waits in its place"),
         [&](Program& program) { DropOp(program, id, /*inherit=*/false); });
  }

  void Move(int id) {
    for (int to = 0; to < program_.ops.size(); ++to) {
      if (to == id) continue;
      Emit(MutantClass::kMoveOp, absl::StrCat("op ", id, ": moved to ", to),
           [&](Program& program) { MoveOp(program, id, to); });
    }
    for (int s = 0; s < kNumStreams; ++s) {
      const auto stream = static_cast<StreamKind>(s);
      if (stream == program_.ops[id].stream) continue;
      EmitOp(MutantClass::kMoveToStream, id,
             absl::StrCat("on stream ", Name(stream)),
             [&](Op& op) { op.stream = stream; });
    }
  }

  void Waits(int id) {
    for (int i = 0; i < program_.ops[id].waits.size(); ++i) {
      const int wait = program_.ops[id].waits[i];
      EmitOp(MutantClass::kRemoveWait, id,
             absl::StrCat("does not wait for op ", wait),
             [&](Op& op) { op.waits.erase(op.waits.begin() + i); });
      const int ahead = Ahead(program_, wait);
      if (ahead < 0) continue;
      EmitOp(MutantClass::kWeakenWait, id,
             absl::StrCat("waits for op ", ahead, " in place of ", wait),
             [&](Op& op) {
               op.waits[i] = ahead;
               Unique(op.waits);
             });
    }
  }

  // Values that may stand in for `value`: instances of the same thing, and one
  // of the same size.
  std::vector<int> StandIns(int value) const {
    const Value& of = program_.values[value];
    std::vector<int> stand_ins;
    int same_size = -1;
    for (int v = 0; v < program_.values.size(); ++v) {
      const Value& other = program_.values[v];
      if (v == value || other.space != of.space) continue;
      const bool same = other.kind == of.kind && other.decl == of.decl &&
                        other.bucket == of.bucket;
      if (same) {
        stand_ins.push_back(v);
      } else if (other.bytes == of.bytes) {
        same_size = v;
      }
    }
    if (same_size >= 0) stand_ins.push_back(same_size);
    return stand_ins;
  }

  template <typename Slot>
  void Retarget(int id, const std::string& slot_name, Slot slot) {
    Program copy = program_;
    const int value = slot(copy.ops[id]);
    if (value < 0) return;
    for (int stand_in : StandIns(value)) {
      EmitOp(MutantClass::kRetargetValue, id,
             absl::StrCat(slot_name, " is value ", stand_in, ", not ", value),
             [&](Op& op) { slot(op) = stand_in; });
    }
  }

  void Values(int id) {
    const Op& op = program_.ops[id];
    for (int i = 0; i < op.args.size(); ++i) {
      Retarget(id, absl::StrCat("arg ", i),
               [i](Op& o) -> int& { return o.args[i]; });
    }
    for (int i = 0; i < op.params.size(); ++i) {
      Retarget(id, absl::StrCat("param ", i),
               [i](Op& o) -> int& { return o.params[i].value; });
    }
    for (int i = 0; i < op.grads.size(); ++i) {
      Retarget(id, absl::StrCat("grad ", i),
               [i](Op& o) -> int& { return o.grads[i].value; });
    }
  }

  void Places(int id) {
    const Op& op = program_.ops[id];
    for (int b = 0; op.bucket >= 0 && b < units_.buckets.size(); ++b) {
      if (b == op.bucket) continue;
      EmitOp(MutantClass::kRetargetBucket, id, absl::StrCat("bucket ", b),
             [&](Op& o) { o.bucket = b; });
    }
    for (int m = 0; op.microbatch >= 0 && m < program_.microbatches; ++m) {
      if (m == op.microbatch) continue;
      EmitOp(MutantClass::kRetargetMicrobatch, id,
             absl::StrCat("microbatch ", m), [&](Op& o) { o.microbatch = m; });
    }
    if (op.kind == OpKind::kNode) Nodes(id);
  }

  void Nodes(int id) {
    const Op& op = program_.ops[id];
    for (int layer = 0; layer < model_.layers.size(); ++layer) {
      if (layer == op.layer) continue;
      EmitOp(MutantClass::kRetargetNode, id, absl::StrCat("layer ", layer),
             [&](Op& o) { o.layer = layer; });
    }
    for (int n = 0; n < model_.layers[op.layer].nodes.size(); ++n) {
      if (n == op.node) continue;
      EmitOp(MutantClass::kRetargetNode, id, absl::StrCat("node ", n),
             [&](Op& o) { o.node = n; });
    }
    for (auto phase : {model::Phase::kForward, model::Phase::kDgrad,
                       model::Phase::kWgrad, model::Phase::kRecompute}) {
      if (phase == op.phase) continue;
      EmitOp(MutantClass::kRetargetNode, id, model::Name(phase),
             [&](Op& o) { o.phase = phase; });
    }
  }

  void Accumulates(int id) {
    const Op& op = program_.ops[id];
    if (op.kind == OpKind::kReduce || op.kind == OpKind::kAdd) {
      EmitOp(MutantClass::kFlipAccumulate, id,
             op.accumulate ? "overwrites" : "adds",
             [](Op& o) { o.accumulate = !o.accumulate; });
    }
    for (int i = 0; i < op.grads.size(); ++i) {
      EmitOp(MutantClass::kFlipAccumulate, id,
             absl::StrCat("grad ", i,
                          op.grads[i].accumulate ? " overwrites" : " adds"),
             [&](Op& o) { o.grads[i].accumulate = !o.grads[i].accumulate; });
    }
  }

  // A step to either side, and onto values that are alive at about the same
  // time: those made shortly before or after.
  void Offsets(int v) {
    constexpr int kNeighbours = 16;
    const Value& value = program_.values[v];
    std::set<int64_t> offsets = {value.offset - 64, value.offset + 64};
    const int end = program_.values.size();
    for (int other = std::max(0, v - kNeighbours);
         other < std::min(end, v + kNeighbours + 1); ++other) {
      if (program_.values[other].space != value.space) continue;
      offsets.insert(program_.values[other].offset);
    }
    for (int64_t offset : offsets) {
      if (offset == value.offset || offset < 0) continue;
      Emit(MutantClass::kRetargetOffset,
           absl::StrCat("value ", v, ": at ", offset, ", not ", value.offset),
           [&](Program& program) { program.values[v].offset = offset; });
    }
  }

  const Program& program_;
  const model::ModelDecl& model_;
  const fsdp::UnitAssignment& units_;
  const std::function<bool()>& chosen_;
  const std::function<void(const Mutant&)>& fn_;
};

}  // namespace

const char* Name(MutantClass kind) {
  constexpr const char* kNames[kNumMutantClasses] = {
      "drop_op",        "drop_op_and_waits", "move_op",
      "move_to_stream", "remove_wait",       "weaken_wait",
      "retarget_value", "retarget_bucket",   "retarget_microbatch",
      "retarget_node",  "retarget_offset",   "flip_accumulate"};
  return kNames[static_cast<int>(kind)];
}

void ForEachMutant(const Program& program, const model::ModelDecl& model,
                   const fsdp::UnitAssignment& units,
                   const std::function<bool()>& chosen,
                   const std::function<void(const Mutant& mutant)>& fn) {
  Mutator(program, model, units, chosen, fn).Run();
}

void DropOp(Program& program, int id, bool inherit) {
  std::vector<int> inherited = program.ops[id].waits;
  const int ahead = Ahead(program, id);
  if (ahead >= 0) inherited.push_back(ahead);
  program.ops.erase(program.ops.begin() + id);
  for (Op& op : program.ops) {
    std::vector<int> waits;
    for (int wait : op.waits) {
      if (wait != id) {
        waits.push_back(wait > id ? wait - 1 : wait);
      } else if (inherit) {
        waits.insert(waits.end(), inherited.begin(), inherited.end());
      }
    }
    Unique(waits);
    op.waits = std::move(waits);
  }
}

void MoveOp(Program& program, int from, int to) {
  Op op = std::move(program.ops[from]);
  program.ops.erase(program.ops.begin() + from);
  program.ops.insert(program.ops.begin() + to, std::move(op));
  for (Op& other : program.ops) {
    for (int& wait : other.waits) {
      if (wait == from) {
        wait = to;
      } else if (from < wait && wait <= to) {
        --wait;
      } else if (to <= wait && wait < from) {
        ++wait;
      }
    }
    Unique(other.waits);
  }
}

void SpreadOut(Program& program) {
  int64_t offset = 0;
  for (Value& value : program.values) {
    value.offset = offset;
    offset += (value.bytes + 63) / 64 * 64;
  }
  program.arena_bytes = program.host_arena_bytes = offset;
}

namespace {

// Everything about an op but its waits.
std::string Identity(const Op& op) {
  std::string text = absl::StrCat(
      static_cast<int>(op.kind), " ", op.layer, " ", op.node, " ",
      static_cast<int>(op.phase), " ", op.microbatch, " ", op.bucket, " ",
      op.accumulate, " (", absl::StrJoin(op.args, ","), ")");
  for (const ParamUse& use : op.params) {
    absl::StrAppend(&text, " p", use.param, "@", use.value);
  }
  for (const GradUse& use : op.grads) {
    absl::StrAppend(&text, " g", use.param, "@", use.value, use.accumulate);
  }
  return text;
}

}  // namespace

std::string ExecutionSignature(const Program& program) {
  std::array<std::string, kNumStreams> streams;
  std::string host;
  int host_waits = 0;
  for (int id = 0; id < program.ops.size(); ++id) {
    const Op& op = program.ops[id];
    std::set<std::string> waits;
    for (int wait : op.waits) {
      // A wait that does not point backwards is for nothing.
      const char* when = wait < id ? "" : "!";
      waits.insert(absl::StrCat(when, Identity(program.ops[wait])));
    }
    const std::string text =
        absl::StrCat(Identity(op), " after ", absl::StrJoin(waits, ";"), "\n");
    if (op.kind == OpKind::kHostWait) {
      ++host_waits;
      absl::StrAppend(&host, text);
    } else {
      absl::StrAppend(&streams[static_cast<int>(op.stream)], "host ",
                      host_waits, ": ", text);
    }
  }
  std::string signature = absl::StrCat(host, absl::StrJoin(streams, "--\n"));
  for (const Value& value : program.values) {
    absl::StrAppend(&signature, value.offset, " ");
  }
  return signature;
}

}  // namespace weft::schedule

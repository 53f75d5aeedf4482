#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "schedule/op_name.h"
#include "schedule/plan.h"

namespace weft::schedule {
namespace {

const char* TitleOf(const Program& program) {
  if (program.kind == ProgramKind::kEval) return "eval";
  if (program.kind == ProgramKind::kReplay) return "replay";
  const bool tapped =
      std::any_of(program.ops.begin(), program.ops.end(),
                  [](const Op& op) { return op.kind == OpKind::kTap; });
  return tapped ? "train with taps" : "train";
}

std::string Header(const Plan& plan, const Program& program) {
  const std::string slots =
      program.buffer_slots == 0
          ? ""
          : absl::StrFormat(", %d slots of %d bytes", program.buffer_slots,
                            SlotBytes(program, plan.units));
  return absl::StrFormat(
      "%s: %d microbatches, %s, world %d, ep %d, %d ops, arena %d bytes%s, "
      "%d units, collectives %016x\n",
      TitleOf(program), program.microbatches, fsdp::Name(program.strategy),
      plan.world.size, plan.world.ep, program.ops.size(), program.arena_bytes,
      slots, plan.units.units.size(),
      CollectiveHash(program, plan.model, plan.units));
}

// Notes after the name: where parameters and gradients lie.
std::string Notes(const Plan& plan, const Program& program, const Op& op) {
  std::vector<std::string> notes;
  int value = -1;
  for (const ParamUse& use : op.params) {
    if (use.value >= 0 && use.value != value) {
      value = use.value;
      notes.push_back(absl::StrCat("reads v", value));
    }
  }
  value = -1;
  for (const GradUse& use : op.grads) {
    if (use.value >= 0 && use.value != value) {
      value = use.value;
      notes.push_back(
          absl::StrCat(use.accumulate ? "adds to v" : "writes v", value));
    }
  }
  if (op.kind == OpKind::kGather) {
    notes.push_back(absl::StrCat("-> v", op.args[0]));
  }
  if (op.kind == OpKind::kRelease) {
    notes.push_back(absl::StrCat("v", op.args[0]));
  }
  if (op.kind == OpKind::kAdd) {
    notes.push_back(absl::StrCat(
        "v", op.args[0], op.accumulate ? " added to" : " ->", " resident"));
  }
  if (op.kind == OpKind::kReduce && !op.args.empty()) {
    notes.push_back(absl::StrCat(
        "v", op.args[0], op.accumulate ? " added to" : " ->", " shard"));
  }
  const size_t biases = plan.model.expert_biases.size();
  if (op.kind == OpKind::kControl && program.kind == ProgramKind::kTrain &&
      biases > 0) {
    notes.push_back(absl::StrCat("moves ", biases, " expert biases"));
  }
  if (op.kind == OpKind::kTap) {
    const int decl = program.values[op.args[0]].decl;
    notes.push_back(plan.model.values[decl].name);
  }
  return absl::StrJoin(notes, ", ");
}

}  // namespace

std::string ToText(const Plan& plan, const Program& program) {
  std::string text = Header(plan, program);
  for (int id = 0; id < program.ops.size(); ++id) {
    const Op& op = program.ops[id];
    const std::string stream =
        op.kind == OpKind::kHostWait ? "host" : Name(op.stream);
    std::string line = absl::StrFormat("%5d %-7s %-34s", id, stream,
                                       OpName(plan.model, plan.units, op));
    if (!op.waits.empty()) {
      absl::StrAppend(&line, " after ", absl::StrJoin(op.waits, ","));
    }
    const std::string notes = Notes(plan, program, op);
    if (!notes.empty()) absl::StrAppend(&line, " (", notes, ")");
    while (line.back() == ' ') line.pop_back();
    absl::StrAppend(&text, line, "\n");
  }
  return text;
}

}  // namespace weft::schedule

#include "schedule/op_name.h"

#include "absl/strings/str_cat.h"

namespace weft::schedule {
namespace {

const char* PhaseLetter(model::Phase phase) {
  switch (phase) {
    case model::Phase::kForward:
      return "F";
    case model::Phase::kDgrad:
      return "B";
    case model::Phase::kWgrad:
      return "W";
    case model::Phase::kRecompute:
      return "R";
  }
  return "?";
}

std::string NodeName(const model::ModelDecl& model, const Op& op) {
  return absl::StrCat(PhaseLetter(op.phase), op.microbatch, " ",
                      model.layers[op.layer].name, ".",
                      Name(model.node(op.layer, op.node).kind));
}

}  // namespace

std::string OpName(const model::ModelDecl& model,
                   const fsdp::UnitAssignment& units, const Op& op) {
  if (op.kind == OpKind::kNode) return NodeName(model, op);
  if (op.kind == OpKind::kHostWait) {
    return absl::StrCat("host_wait ", NodeName(model, op));
  }
  if (op.kind == OpKind::kTap) {
    return absl::StrCat("tap ", NodeName(model, op));
  }
  if (op.kind == OpKind::kControl) return "control";
  const fsdp::Bucket& bucket = units.buckets[op.bucket];
  const std::string name =
      absl::StrCat(Name(op.kind), " ", units.units[bucket.unit].name, ".",
                   fsdp::Name(bucket.axis), bucket.frozen ? ".frozen" : "");
  return op.microbatch >= 0 ? absl::StrCat(name, " mb", op.microbatch) : name;
}

}  // namespace weft::schedule

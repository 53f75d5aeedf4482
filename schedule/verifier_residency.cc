#include <map>
#include <string>

#include "schedule/verifier_proofs.h"

namespace weft::schedule {

absl::Status ProveResidency(const Subject& s, const HappensBefore& before) {
  std::map<int, int> gather;   // value -> op
  std::map<int, int> release;  // value -> op
  for (int id = 0; id < s.program.ops.size(); ++id) {
    const Op& op = s.program.ops[id];
    if (op.kind != OpKind::kGather && op.kind != OpKind::kRelease) continue;
    auto& ops = op.kind == OpKind::kGather ? gather : release;
    if (!ops.insert({op.args[0], id}).second) {
      return Broken("residency", id, "a second ", Name(op.kind), " of value ",
                    op.args[0]);
    }
  }
  for (const auto& [value, id] : gather) {
    if (release.count(value) == 0) {
      return Broken("residency", id, "value ", value, " is never released");
    }
  }
  for (const auto& [value, id] : release) {
    if (gather.count(value) == 0 || !before(gather.at(value), id)) {
      return Broken("residency", id, "value ", value,
                    " is released before it is gathered");
    }
  }
  for (int id = 0; id < s.program.ops.size(); ++id) {
    for (const ParamUse& use : s.program.ops[id].params) {
      if (use.value < 0) continue;
      const std::string& name = s.model.params[use.param].name;
      if (gather.count(use.value) == 0 || !before(gather.at(use.value), id)) {
        return Broken("residency", id, "reads ", name,
                      " before its bucket is gathered");
      }
      if (!before(id, release.at(use.value))) {
        return Broken("residency", id, "reads ", name, " after op ",
                      release.at(use.value), " may have released its bucket");
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace weft::schedule

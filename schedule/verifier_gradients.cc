#include <map>
#include <string>
#include <utility>

#include "base/status_macros.h"
#include "schedule/verifier_proofs.h"

namespace weft::schedule {
namespace {

// A sum over microbatches has one order, theirs: another gives other bits.
absl::Status FollowsWrite(const Subject& s, const HappensBefore& before,
                          int earlier, int id, const std::string& name) {
  if (!before(earlier, id)) {
    return Broken("gradients", id, "and op ", earlier,
                  " write the gradient of ", name, " in no order");
  }
  const int ahead = s.program.ops[earlier].microbatch;
  if (ahead > s.program.ops[id].microbatch) {
    return Broken("gradients", id, "adds microbatch ",
                  s.program.ops[id].microbatch, " to the gradient of ", name,
                  " after op ", earlier, " has added microbatch ", ahead);
  }
  return absl::OkStatus();
}

// The first write of a gradient overwrites, later ones add, one after another.
absl::Status GradientWrites(const Subject& s, const HappensBefore& before) {
  std::map<std::pair<int, int>, int> last;  // (param, microbatch) -> op
  for (int id = 0; id < s.program.ops.size(); ++id) {
    for (const GradUse& use : s.program.ops[id].grads) {
      const std::string& name = s.model.params[use.param].name;
      const bool resident = s.paths[s.units.bucket_of_param[use.param]] ==
                            GradientPath::kResident;
      const std::pair<int, int> key = {
          use.param, resident ? 0 : s.program.ops[id].microbatch};
      const auto it = last.find(key);
      if (use.accumulate != (it != last.end())) {
        return Broken("gradients", id,
                      use.accumulate ? "adds to" : "overwrites",
                      " the gradient of ", name);
      }
      if (it != last.end()) {
        RETURN_IF_ERROR(FollowsWrite(s, before, it->second, id, name));
      }
      last[key] = id;
    }
  }
  return absl::OkStatus();
}

// Ops that collect gradients: (bucket, microbatch) -> op.
using Collectors = std::map<std::pair<int, int>, int>;

// An op that takes a value of its microbatch and adds it to a sum.
absl::Status CollectsInOrder(const Subject& s, int id,
                             const Collectors& collectors) {
  const Op& op = s.program.ops[id];
  const char* sum =
      op.kind == OpKind::kAdd ? " the resident gradients of" : " the shard of";
  if (s.program.values[op.args[0]].microbatch != op.microbatch) {
    return Broken("gradients", id, Name(op.kind),
                  " takes another microbatch's gradients");
  }
  if (op.accumulate != (op.microbatch > 0)) {
    return Broken("gradients", id, op.accumulate ? "adds to" : "overwrites",
                  sum, " bucket ", op.bucket);
  }
  if (op.accumulate &&
      collectors.find({op.bucket, op.microbatch - 1}) == collectors.end()) {
    return Broken("gradients", id, "adds microbatch ", op.microbatch, " to",
                  sum, " bucket ", op.bucket, " before the one ahead of it");
  }
  return absl::OkStatus();
}

absl::Status CollectOnce(const Subject& s, int id, Collectors& collectors) {
  const Op& op = s.program.ops[id];
  if (!InRange(op.microbatch, s.program.microbatches) ||
      !collectors.insert({{op.bucket, op.microbatch}, id}).second) {
    return Broken("gradients", id, Name(op.kind), " of bucket ", op.bucket,
                  " a second time for microbatch ", op.microbatch);
  }
  if (!op.args.empty()) return CollectsInOrder(s, id, collectors);
  if (op.microbatch != s.program.microbatches - 1) {
    return Broken("gradients", id, "reduces bucket ", op.bucket,
                  " before the last microbatch");
  }
  if (op.accumulate) {
    return Broken("gradients", id, "adds to the shard of bucket ", op.bucket);
  }
  return absl::OkStatus();
}

// What collects the gradients of a bucket and microbatch comes after the ops
// that write them, and what reduces their sum after that.
absl::Status WrittenBeforeCollected(const Subject& s,
                                    const HappensBefore& before,
                                    const Collectors& adds,
                                    const Collectors& reduces) {
  const int last = s.program.microbatches - 1;
  for (int id = 0; id < s.program.ops.size(); ++id) {
    const Op& op = s.program.ops[id];
    for (const GradUse& use : op.grads) {
      const int bucket = s.units.bucket_of_param[use.param];
      const GradientPath path = s.paths[bucket];
      const int by = path == GradientPath::kAddedEachMicrobatch
                         ? adds.at({bucket, op.microbatch})
                     : path == GradientPath::kResident
                         ? reduces.at({bucket, last})
                         : reduces.at({bucket, op.microbatch});
      if (path != GradientPath::kResident &&
          s.program.ops[by].args[0] != use.value) {
        return Broken("gradients", id, "writes the gradient of ",
                      s.model.params[use.param].name, " to value ", use.value,
                      ", but op ", by, " collects value ",
                      s.program.ops[by].args[0]);
      }
      if (!before(id, by)) {
        return Broken("gradients", by, Name(s.program.ops[by].kind),
                      " of bucket ", bucket, " before op ", id, " has written ",
                      s.model.params[use.param].name);
      }
    }
  }
  for (const auto& [key, add] : adds) {
    const int by = reduces.at({key.first, last});
    if (!before(add, by)) {
      return Broken("gradients", by, "reduces bucket ", key.first,
                    " before op ", add, " has added microbatch ", key.second);
    }
  }
  return absl::OkStatus();
}

// The error of gradients that nothing collects: names an op that writes them.
absl::Status NotCollected(const Subject& s, OpKind kind, int bucket,
                          int microbatch) {
  for (int id = 0; id < s.program.ops.size(); ++id) {
    const Op& op = s.program.ops[id];
    for (const GradUse& use : op.grads) {
      if (s.units.bucket_of_param[use.param] != bucket ||
          op.microbatch != microbatch) {
        continue;
      }
      return Broken("gradients", id, "writes gradients of bucket ", bucket,
                    " in microbatch ", microbatch, ", for which there is no ",
                    Name(kind));
    }
  }
  return BrokenPlan("gradients", "no ", Name(kind), " of bucket ", bucket,
                    " for microbatch ", microbatch);
}

absl::Status AllCollected(const Subject& s, const Collectors& adds,
                          const Collectors& reduces) {
  const int last = s.program.microbatches - 1;
  for (int bucket = 0; bucket < s.paths.size(); ++bucket) {
    if (s.paths[bucket] == GradientPath::kNone) continue;
    for (int m = 0; m <= last; ++m) {
      const bool each = s.paths[bucket] == GradientPath::kReducedEachMicrobatch;
      const bool added = s.paths[bucket] == GradientPath::kAddedEachMicrobatch;
      if (added && adds.count({bucket, m}) == 0) {
        return NotCollected(s, OpKind::kAdd, bucket, m);
      }
      if ((each || m == last) && reduces.count({bucket, m}) == 0) {
        return NotCollected(s, OpKind::kReduce, bucket, m);
      }
    }
  }
  return absl::OkStatus();
}

absl::Status Collections(const Subject& s, const HappensBefore& before) {
  Collectors adds;
  Collectors reduces;
  for (int id = 0; id < s.program.ops.size(); ++id) {
    const OpKind kind = s.program.ops[id].kind;
    if (kind != OpKind::kAdd && kind != OpKind::kReduce) continue;
    if (s.program.kind == ProgramKind::kEval) {
      return Broken("gradients", id, Name(kind), " in a program of forwards");
    }
    if (kind == OpKind::kAdd) RETURN_IF_ERROR(CollectOnce(s, id, adds));
    if (kind == OpKind::kReduce) RETURN_IF_ERROR(CollectOnce(s, id, reduces));
  }
  if (s.program.kind != ProgramKind::kEval) {
    RETURN_IF_ERROR(AllCollected(s, adds, reduces));
  }
  return WrittenBeforeCollected(s, before, adds, reduces);
}

// The control op, and the op that optimizes each bucket after it.
absl::Status FindOptimizers(const Subject& s, const HappensBefore& before,
                            int& control, std::map<int, int>& optimizers) {
  control = -1;
  for (int id = 0; id < s.program.ops.size(); ++id) {
    const Op& op = s.program.ops[id];
    if (op.kind == OpKind::kControl) {
      if (control >= 0) return Broken("gradients", id, "a second control op");
      control = id;
    }
    if (op.kind != OpKind::kOptimizer) continue;
    if (s.program.kind != ProgramKind::kTrain) {
      return Broken(
          "gradients", id, "optimizes in a program of ",
          s.program.kind == ProgramKind::kEval ? "forwards" : "a replay");
    }
    if (control < 0 || !before(control, id)) {
      return Broken("gradients", id, "optimizes before the control op");
    }
    if (!optimizers.insert({op.bucket, id}).second) {
      return Broken("gradients", id, "optimizes bucket ", op.bucket, " twice");
    }
  }
  if (control >= 0) return absl::OkStatus();
  return Broken("gradients", static_cast<int>(s.program.ops.size()) - 1,
                "ends a step without a control op");
}

// The optimizer changes weights in place, with the norm of all gradients.
absl::Status Optimizer(const Subject& s, const HappensBefore& before) {
  int control = -1;
  std::map<int, int> optimizers;  // bucket -> op
  RETURN_IF_ERROR(FindOptimizers(s, before, control, optimizers));
  auto read_before = [&](int id, int bucket, const char* reads) {
    const auto it = optimizers.find(bucket);
    if (it == optimizers.end() || before(id, it->second)) {
      return absl::OkStatus();
    }
    return Broken("gradients", it->second, "changes weights that op ", id,
                  " may still ", reads);
  };
  for (int id = 0; id < s.program.ops.size(); ++id) {
    const Op& op = s.program.ops[id];
    if (op.kind == OpKind::kReduce && !before(id, control)) {
      return Broken("gradients", control, "starts before op ", id,
                    " has reduced bucket ", op.bucket);
    }
    if (op.kind == OpKind::kReduce && s.program.kind == ProgramKind::kTrain &&
        optimizers.count(op.bucket) == 0) {
      return Broken("gradients", id, "reduces bucket ", op.bucket,
                    ", which no op optimizes");
    }
    if (op.kind == OpKind::kGather) {
      RETURN_IF_ERROR(read_before(id, op.bucket, "gather"));
    }
    for (const ParamUse& use : op.params) {
      const int bucket = s.units.bucket_of_param[use.param];
      RETURN_IF_ERROR(read_before(id, bucket, "read"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ProveGradients(const Subject& s, const HappensBefore& before) {
  RETURN_IF_ERROR(GradientWrites(s, before));
  RETURN_IF_ERROR(Collections(s, before));
  return Optimizer(s, before);
}

}  // namespace weft::schedule

#include <map>
#include <string>
#include <utility>

#include "base/status_macros.h"
#include "schedule/verifier_proofs.h"

namespace weft::schedule {
namespace {

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
      if (it != last.end() && !before(it->second, id)) {
        return Broken("gradients", id, "and op ", it->second,
                      " write the gradient of ", name, " in no order");
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

absl::Status Collections(const Subject& s, const HappensBefore& before) {
  Collectors adds;
  Collectors reduces;
  for (int id = 0; id < s.program.ops.size(); ++id) {
    const OpKind kind = s.program.ops[id].kind;
    if (kind == OpKind::kAdd) RETURN_IF_ERROR(CollectOnce(s, id, adds));
    if (kind == OpKind::kReduce) RETURN_IF_ERROR(CollectOnce(s, id, reduces));
  }
  size_t expected_adds = 0;
  size_t expected_reduces = 0;
  for (const GradientPath path : s.paths) {
    if (s.program.kind != ProgramKind::kTrain) break;
    const bool each = path == GradientPath::kReducedEachMicrobatch;
    expected_reduces += each ? s.program.microbatches : 1;
    if (path == GradientPath::kAddedEachMicrobatch) {
      expected_adds += s.program.microbatches;
    }
  }
  if (adds.size() != expected_adds || reduces.size() != expected_reduces) {
    return BrokenPlan("gradients", adds.size(), " adds and ", reduces.size(),
                      " reductions of ", expected_adds, " and ",
                      expected_reduces);
  }
  return WrittenBeforeCollected(s, before, adds, reduces);
}

// The op that optimizes each bucket, and the control op before all of them.
absl::Status Optimizer(const Subject& s, const HappensBefore& before) {
  int control = -1;
  std::map<int, int> optimizer;  // bucket -> op
  for (int id = 0; id < s.program.ops.size(); ++id) {
    const Op& op = s.program.ops[id];
    if (op.kind == OpKind::kControl) {
      if (control >= 0) return Broken("gradients", id, "a second control op");
      control = id;
    }
    if (op.kind != OpKind::kOptimizer) continue;
    if (control < 0 || !before(control, id)) {
      return Broken("gradients", id, "optimizes before the control op");
    }
    if (!optimizer.insert({op.bucket, id}).second) {
      return Broken("gradients", id, "optimizes bucket ", op.bucket, " twice");
    }
  }
  const bool train = s.program.kind == ProgramKind::kTrain;
  if (control < 0 || optimizer.size() != (train ? s.units.buckets.size() : 0)) {
    return BrokenPlan("gradients", control < 0 ? 0 : 1,
                      " control ops of 1 and ", optimizer.size(),
                      " buckets optimized");
  }
  for (int id = 0; id < s.program.ops.size(); ++id) {
    const Op& op = s.program.ops[id];
    if (op.kind == OpKind::kReduce && !before(id, control)) {
      return Broken("gradients", control, "starts before op ", id,
                    " has reduced bucket ", op.bucket);
    }
    if (!train) continue;
    // Readers of the weights that the optimizer changes in place.
    if (op.kind == OpKind::kGather && !before(id, optimizer.at(op.bucket))) {
      return Broken("gradients", optimizer.at(op.bucket),
                    "changes weights that op ", id, " may still gather");
    }
    for (const ParamUse& use : op.params) {
      const int by = optimizer.at(s.units.bucket_of_param[use.param]);
      if (!before(id, by)) {
        return Broken("gradients", by, "changes weights that op ", id,
                      " may still read");
      }
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

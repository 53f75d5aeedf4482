#include <map>
#include <string>
#include <utility>

#include "base/status_macros.h"
#include "schedule/verifier_proofs.h"

namespace weft::schedule {
namespace {

// The first write of a gradient overwrites, later ones add, one after another.
absl::Status GradientWrites(const Subject& s, const HappensBefore& before) {
  const bool resident = GradientsResident(s.program.strategy);
  std::map<std::pair<int, int>, int> last;  // (param, microbatch) -> op
  for (int id = 0; id < s.program.ops.size(); ++id) {
    for (const GradUse& use : s.program.ops[id].grads) {
      const std::string& name = s.model.params[use.param].name;
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

absl::Status Reductions(const Subject& s, const HappensBefore& before) {
  if (s.program.kind != ProgramKind::kTrain) return absl::OkStatus();
  const bool resident = GradientsResident(s.program.strategy);
  const int last = s.program.microbatches - 1;
  std::map<std::pair<int, int>, int> reduce;  // (bucket, microbatch) -> op
  for (int id = 0; id < s.program.ops.size(); ++id) {
    const Op& op = s.program.ops[id];
    if (op.kind != OpKind::kReduce) continue;
    if (!InRange(op.microbatch, s.program.microbatches) ||
        !reduce.insert({{op.bucket, op.microbatch}, id}).second) {
      return Broken("gradients", id, "reduces bucket ", op.bucket,
                    " a second time for microbatch ", op.microbatch);
    }
    if (resident && op.microbatch != last) {
      return Broken("gradients", id, "reduces bucket ", op.bucket,
                    " before the last microbatch");
    }
    if (!resident && s.program.values[op.args[0]].microbatch != op.microbatch) {
      return Broken("gradients", id, "reduces another microbatch's gradients");
    }
    if (op.accumulate != (!resident && op.microbatch > 0)) {
      return Broken("gradients", id, op.accumulate ? "adds to" : "overwrites",
                    " the shard of bucket ", op.bucket);
    }
    const auto earlier = reduce.find({op.bucket, op.microbatch - 1});
    if (op.accumulate && earlier == reduce.end()) {
      return Broken("gradients", id, "adds microbatch ", op.microbatch,
                    " to the shard before the one ahead of it");
    }
  }
  const size_t expected =
      s.units.buckets.size() * (resident ? 1 : s.program.microbatches);
  if (reduce.size() != expected) {
    return Broken("gradients", s.program.ops.size(), reduce.size(),
                  " reductions of ", expected);
  }
  for (int id = 0; id < s.program.ops.size(); ++id) {
    for (const GradUse& use : s.program.ops[id].grads) {
      const int bucket = s.units.bucket_of_param[use.param];
      const int by =
          reduce.at({bucket, resident ? last : s.program.ops[id].microbatch});
      if (!before(id, by)) {
        return Broken("gradients", by, "reduces bucket ", bucket, " before op ",
                      id, " has written ", s.model.params[use.param].name);
      }
    }
  }
  return absl::OkStatus();
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
    return Broken("gradients", s.program.ops.size(), control < 0 ? 0 : 1,
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
  RETURN_IF_ERROR(Reductions(s, before));
  return Optimizer(s, before);
}

}  // namespace weft::schedule

// The verifier's proofs, one function each. See verifier.h for what they mean.
// Callers use VerifyProgram(); tests also use the parts.
#ifndef WEFT_SCHEDULE_VERIFIER_PROOFS_H_
#define WEFT_SCHEDULE_VERIFIER_PROOFS_H_

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "fsdp/unit/unit.h"
#include "model/declaration.h"
#include "schedule/happens_before.h"
#include "schedule/program.h"

namespace weft::schedule {

// What is being verified.
struct Subject {
  const Program& program;
  const model::ModelDecl& model;
  const fsdp::UnitAssignment& units;
  const std::vector<GradientPath> paths;  // by bucket
};

// The error of a proof that fails for no single op.
template <typename... Args>
absl::Status BrokenPlan(const char* proof, const Args&... args) {
  return absl::InternalError(
      absl::StrCat("plan is broken: ", proof, ": ", args...));
}

// The error of a proof that fails at `op`.
template <typename... Args>
absl::Status Broken(const char* proof, int op, const Args&... args) {
  return BrokenPlan(proof, "op ", op, ": ", args...);
}

// The error of a proof that fails for a value: names the first op that uses it,
// too.
template <typename... Args>
absl::Status BrokenValue(const char* proof, const Program& program, int value,
                         const Args&... args) {
  for (int id = 0; id < program.ops.size(); ++id) {
    const Op& op = program.ops[id];
    bool uses = false;
    for (int arg : op.args) uses |= arg == value;
    for (const ParamUse& use : op.params) uses |= use.value == value;
    for (const GradUse& use : op.grads) uses |= use.value == value;
    if (uses) return Broken(proof, id, "value ", value, " ", args...);
  }
  return BrokenPlan(proof, "value ", value, ", which no op uses, ", args...);
}

inline bool InRange(int index, size_t size) {
  return index >= 0 && static_cast<size_t>(index) < size;
}

// The proofs below may index freely once this one holds.
absl::Status ProveShape(const Subject& s);

absl::Status ProveCoverage(const Subject& s);
absl::Status ProveResidency(const Subject& s, const HappensBefore& before);
absl::Status ProveGradients(const Subject& s, const HappensBefore& before);
absl::Status ProveValues(const Subject& s, const HappensBefore& before);
absl::Status ProveSlots(const Subject& s);
absl::Status ProveAgreement(const Subject& s);
// Of ranks that do not all run one program; see VerifyRanks().
absl::Status ProveAgreementOfRanks(absl::Span<const Program* const> by_rank,
                                   const fsdp::World& world,
                                   const fsdp::UnitAssignment& units);

// Whether an op meets the same op of other ranks.
bool IsCollective(const Op& op);

}  // namespace weft::schedule

#endif  // WEFT_SCHEDULE_VERIFIER_PROOFS_H_

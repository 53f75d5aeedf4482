#include "schedule/verifier.h"

#include "base/status_macros.h"
#include "schedule/happens_before.h"
#include "schedule/verifier_proofs.h"

namespace weft::schedule {

absl::Status VerifyProgram(const Program& program,
                           const model::ModelDecl& model,
                           const fsdp::UnitAssignment& units) {
  const Subject subject{
      program, model, units,
      GradientPaths(model, units, program.strategy, program.microbatches)};
  RETURN_IF_ERROR(ProveShape(subject));
  RETURN_IF_ERROR(ProveCoverage(subject));
  const HappensBefore before(program);
  RETURN_IF_ERROR(ProveResidency(subject, before));
  RETURN_IF_ERROR(ProveGradients(subject, before));
  RETURN_IF_ERROR(ProveValues(subject, before));
  return ProveAgreement(subject);
}

}  // namespace weft::schedule

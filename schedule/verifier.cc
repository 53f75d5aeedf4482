#include "schedule/verifier.h"

#include <set>

#include "absl/strings/str_cat.h"
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
  RETURN_IF_ERROR(ProveSlots(subject));
  return ProveAgreement(subject);
}

absl::Status VerifyRanks(absl::Span<const Program* const> by_rank,
                         const fsdp::World& world,
                         const model::ModelDecl& model,
                         const fsdp::UnitAssignment& units) {
  std::set<const Program*> proved;
  for (int rank = 0; rank < by_rank.size(); ++rank) {
    if (!proved.insert(by_rank[rank]).second) continue;
    const absl::Status sound = VerifyProgram(*by_rank[rank], model, units);
    if (sound.ok()) continue;
    return proved.size() == 1 ? sound
                              : Annotate(sound, absl::StrCat("rank ", rank));
  }
  // One program: its own proof is that of all ranks.
  if (proved.size() <= 1) return absl::OkStatus();
  return ProveAgreementOfRanks(by_rank, world, units);
}

}  // namespace weft::schedule

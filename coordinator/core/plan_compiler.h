// From a legal job to what its ranks run.
#ifndef WEFT_COORDINATOR_CORE_PLAN_COMPILER_H_
#define WEFT_COORDINATOR_CORE_PLAN_COMPILER_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "weft/plan/v1/plan.pb.h"
#include "weft/v1/job.pb.h"
#include "weft/v1/job_service.pb.h"

namespace weft::coordinator {

// A verified plan in the form that travels. All ranks share it; a rank's
// binding is {rank, world, ep}.
struct CompiledPlan {
  v1::PlanSummary summary;
  plan::v1::Program train;
  std::optional<plan::v1::Program> eval;    // when the job validates
  std::optional<plan::v1::Program> tapped;  // when the job taps
  plan::v1::UnitAssignment units;
};

// A plan for people.
struct PlanTexts {
  std::string text;
  std::string timeline;
  v1::PlanSummary summary;
};

// Requires: the job is legal. An error is INTERNAL: a fault of the compiler.
// Thread-safe.
class PlanCompiler {
 public:
  virtual ~PlanCompiler() = default;

  // Compiles and verifies.
  virtual absl::StatusOr<CompiledPlan> Compile(
      const v1::TrainingJob& job) const = 0;

  // The plan of `rank` as text. Requires: 0 <= rank < world.
  virtual absl::StatusOr<PlanTexts> Describe(const v1::TrainingJob& job,
                                             int rank) const = 0;
};

}  // namespace weft::coordinator

#endif  // WEFT_COORDINATOR_CORE_PLAN_COMPILER_H_

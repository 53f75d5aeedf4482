// The plan compiler of the schedule room.
#ifndef WEFT_COORDINATOR_CORE_SCHEDULE_COMPILER_H_
#define WEFT_COORDINATOR_CORE_SCHEDULE_COMPILER_H_

#include "absl/status/statusor.h"
#include "coordinator/core/plan_compiler.h"
#include "weft/v1/job.pb.h"

namespace weft::coordinator {

// Compiles; schedule::Compile() verifies. Thread-safe.
class ScheduleCompiler : public PlanCompiler {
 public:
  absl::StatusOr<CompiledPlan> Compile(
      const v1::TrainingJob& job) const override;
  absl::StatusOr<PlanTexts> Describe(const v1::TrainingJob& job,
                                     int rank) const override;
};

}  // namespace weft::coordinator

#endif  // WEFT_COORDINATOR_CORE_SCHEDULE_COMPILER_H_

// From a job someone wants to run to one that can run.
#ifndef WEFT_COORDINATOR_CORE_ADMISSION_H_
#define WEFT_COORDINATOR_CORE_ADMISSION_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/core/plan_compiler.h"
#include "weft/v1/job.pb.h"
#include "weft/v1/job_service.pb.h"

namespace weft::coordinator {

// Largest plan. It travels to a worker in one message, of which the transport
// takes 64 MiB; the rest of the message needs little.
inline constexpr int64_t kMaxPlanBytes = int64_t{60} << 20;

struct AdmittedJob {
  std::vector<std::string> warnings;
  std::shared_ptr<const CompiledPlan> plan;  // the queue's and its runs'
};

// Validates, compiles and verifies. INVALID_ARGUMENT with all violations (see
// validate.h), or when the plan is too large; INTERNAL when the compiler fails.
absl::StatusOr<AdmittedJob> Admit(const v1::TrainingJob& job,
                                  const PlanCompiler& compiler);

// Answers JobService.GetPlan for a job that need not be known. INVALID_ARGUMENT
// also when the rank is not one of the job's.
absl::StatusOr<v1::GetPlanResponse> DescribePlan(const v1::TrainingJob& job,
                                                 int rank,
                                                 const PlanCompiler& compiler);

}  // namespace weft::coordinator

#endif  // WEFT_COORDINATOR_CORE_ADMISSION_H_

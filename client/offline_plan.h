// The plan of a job, compiled here without a coordinator.
#ifndef WEFT_CLIENT_OFFLINE_PLAN_H_
#define WEFT_CLIENT_OFFLINE_PLAN_H_

#include <vector>

#include "absl/status/statusor.h"
#include "client/yaml_message.h"
#include "weft/v1/job.pb.h"
#include "weft/v1/job_service.pb.h"

namespace weft::client {

// What keeps a job from being compiled at all: sizes that are missing, do not
// divide, or make a plan too large. Not the rules of the coordinator, which
// alone decides what is legal: a job may pass here and be refused there.
std::vector<FieldError> PlanObstacles(const v1::TrainingJob& job,
                                      const FieldOrigins& origins);

// Compiles and verifies. `columns` bounds the width of the timeline. INTERNAL
// when the compiler and the verifier disagree; INVALID_ARGUMENT when `rank` is
// not in the job's world. Requires: PlanObstacles() finds none.
absl::StatusOr<v1::GetPlanResponse> CompilePlan(const v1::TrainingJob& job,
                                                int rank, int columns);

}  // namespace weft::client

#endif  // WEFT_CLIENT_OFFLINE_PLAN_H_

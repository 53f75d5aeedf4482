// The plan of a job, compiled here without a coordinator.
#ifndef WEFT_CLIENT_OFFLINE_PLAN_H_
#define WEFT_CLIENT_OFFLINE_PLAN_H_

#include "absl/status/statusor.h"
#include "weft/v1/job.pb.h"
#include "weft/v1/job_service.pb.h"

namespace weft::client {

// Compiles and verifies. `columns` bounds the width of the timeline.
// INVALID_ARGUMENT when the job is not legal, with all violations as the
// coordinator gives them, or `rank` is not in the job's world; INTERNAL when
// the compiler and the verifier disagree.
absl::StatusOr<v1::GetPlanResponse> CompilePlan(const v1::TrainingJob& job,
                                                int rank, int columns);

}  // namespace weft::client

#endif  // WEFT_CLIENT_OFFLINE_PLAN_H_

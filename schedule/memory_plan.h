// Memory a rank's device holds for a job, known before the job runs.
#ifndef WEFT_SCHEDULE_MEMORY_PLAN_H_
#define WEFT_SCHEDULE_MEMORY_PLAN_H_

#include <cstdint>

#include "schedule/plan.h"
#include "weft/v1/job_service.pb.h"

namespace weft::schedule {

// What optimizers read anew in every step: five numbers of 8 bytes.
inline constexpr int64_t kOptimizerScalarBytes = 5 * int64_t{sizeof(double)};

// Whether the size of a value depends on routing.
bool IsRouted(const model::ModelDecl& model, const Value& value);

// Bytes by category, of the largest rank. Their sum is what a worker allocates
// on its device, to the byte. Routed values are those alive when most bytes
// are, at the bound of their rows; what else the arena holds counts as static.
v1::MemoryPlan PlanMemory(const Plan& plan);

// Bytes of gathered buckets in a program's arena when most bytes are alive.
int64_t GatheredAtPeak(const Program& program);

// The program of a plan whose arena is the largest: all share its memory.
const Program& LargestProgram(const Plan& plan);

// The sum of all categories.
int64_t TotalBytes(const v1::MemoryPlan& memory);

}  // namespace weft::schedule

#endif  // WEFT_SCHEDULE_MEMORY_PLAN_H_

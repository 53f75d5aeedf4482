// What a job's start says to its workers and its watchers.
#ifndef WEFT_COORDINATOR_CORE_PREPARE_H_
#define WEFT_COORDINATOR_CORE_PREPARE_H_

#include <cstdint>
#include <vector>

#include "coordinator/core/plan_compiler.h"
#include "weft/v1/job_service.pb.h"
#include "weft/worker/v1/worker_control_service.pb.h"

namespace weft::coordinator {

// The Prepare of one rank of a legal job.
worker::v1::AttachResponse MakePrepare(const v1::Job& job,
                                       const CompiledPlan& plan, int64_t epoch,
                                       int rank);

// The deadlines of the communication groups of a legal job that have more than
// one member.
std::vector<v1::GroupDeadline> GroupDeadlines(const v1::TrainingJob& job);

}  // namespace weft::coordinator

#endif  // WEFT_COORDINATOR_CORE_PREPARE_H_

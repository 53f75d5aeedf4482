// Jobs and workers as people read them.
#ifndef WEFT_CLIENT_DESCRIBE_H_
#define WEFT_CLIENT_DESCRIBE_H_

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/output.h"
#include "weft/v1/cluster_service.pb.h"
#include "weft/v1/job_service.pb.h"

namespace weft::client {

// One row a job, or a worker. `now` is what ages are counted from.
TextTable JobTable(const std::vector<v1::Job>& jobs, absl::Time now);
TextTable WorkerTable(const std::vector<v1::Worker>& workers, absl::Time now);

// Everything about a job, a line a subject.
std::string DescribeJob(const v1::Job& job, absl::Time now);
std::string DescribeWorker(const v1::Worker& worker, absl::Time now);

// What whoever waited for a job wants to know of its end, but for the reason.
std::string DescribeEnd(const v1::Job& job);

// What a job takes of a rank's device, by category.
Record MemoryRecord(const v1::MemoryPlan& memory);

// A plan in numbers, for people.
Record PlanRecord(const v1::PlanSummary& plan);

}  // namespace weft::client

#endif  // WEFT_CLIENT_DESCRIBE_H_

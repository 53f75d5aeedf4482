// Measured steps, as ranks leave them in the artifacts of their job.
#ifndef WEFT_CLIENT_STEP_TRACE_H_
#define WEFT_CLIENT_STEP_TRACE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "schedule/calibrate.h"
#include "weft/v1/job_service.pb.h"

namespace weft::client {

// What the traces of all ranks say of one step.
struct StepTrace {
  schedule::MeasuredStep step;  // of the plan it was read for
  // Largest over ranks; 0 when workers did not measure it.
  int64_t peak_device_bytes = 0;
};

// FAILED_PRECONDITION when a job asked for no trace.
absl::Status CheckMeasured(const v1::Job& job);

// The traces of a job that ran with output.trace_step, compiled to `plan`, and
// the median of its StepSeconds. FAILED_PRECONDITION when the job asked for
// none, or its ranks were on several hosts, as they share no clock; NOT_FOUND
// when a rank's file or the log of steps is not there; DATA_LOSS, naming the
// file, when it is none or not of the plan.
absl::StatusOr<StepTrace> ReadStepTrace(const v1::Job& job,
                                        const schedule::Plan& plan);

// The traces of all ranks as one Chrome trace JSON that begins at 0. Errors as
// ReadStepTrace, but for the plan.
absl::StatusOr<std::string> MergeTraces(const v1::Job& job);

// Seconds of a job's steps on rank 0, but for the first one. NOT_FOUND when
// there is no log of two steps.
absl::StatusOr<std::vector<double>> StepSeconds(const std::string& artifacts);

}  // namespace weft::client

#endif  // WEFT_CLIENT_STEP_TRACE_H_

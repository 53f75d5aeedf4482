// What of a step goes into an event file, and under which tags.
#ifndef WEFT_RECORDS_STEP_SCALARS_H_
#define WEFT_RECORDS_STEP_SCALARS_H_

#include <cstdint>
#include <vector>

#include "records/event_file.h"
#include "weft/v1/job_service.pb.h"

namespace weft::records {

// Tags are Megatron-LM's where it writes the same number, so that curves lie
// over each other: "lm loss", "learning-rate", "grad-norm", "iteration-time"
// (seconds), "batch-size" (sequences) and, of a validation, "lm loss
// validation". What was not measured is left out. `sequences`: of a step over
// all ranks.
std::vector<Scalar> ScalarsOf(const v1::StepMetrics& step, int64_t sequences);
std::vector<Scalar> ScalarsOf(const v1::EvalMetrics& eval);

}  // namespace weft::records

#endif  // WEFT_RECORDS_STEP_SCALARS_H_

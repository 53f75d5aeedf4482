// What the simulator says of a job, and how near it came.
#ifndef WEFT_CLIENT_SIMULATION_H_
#define WEFT_CLIENT_SIMULATION_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/output.h"
#include "schedule/op_cost.h"
#include "weft/v1/job.pb.h"
#include "weft/v1/job_service.pb.h"

namespace weft::client {

// A step that nobody ran.
struct PredictedStep {
  Record record;      // in numbers, for people
  std::string trace;  // Chrome trace JSON
};

// Simulates a training step with balanced routing; null costs: those of a
// modelled device. NOT_FOUND when the table lacks a class of ops; INTERNAL when
// the job does not compile. Requires: the job is legal.
absl::StatusOr<PredictedStep> PredictStep(const v1::TrainingJob& job,
                                          const schedule::CostTable* costs);

// Writes a file whole, or not at all. The system's error, naming the path.
absl::Status WriteTextFile(const std::string& path, const std::string& text);

// A step that ran beside what the simulator says of it.
struct Comparison {
  double predicted_seconds = 0;
  double measured_seconds = 0;  // median of all steps but the first of a run
  int64_t predicted_peak_bytes = 0;
  int64_t measured_peak_bytes = 0;  // 0: not measured

  // (predicted - measured) / measured.
  double seconds_error() const;
  double peak_error() const;
};

// Whether two jobs are runs of one: alike but for the step they traced.
bool AreRunsOfOne(const v1::Job& a, const v1::Job& b);

// Simulates runs of one job that ran with output.trace_step, with the rows that
// were routed in those steps; what is predicted is the median, of peaks the
// largest. Errors as ReadStepTrace and PredictStep. Requires: a run.
absl::StatusOr<Comparison> CompareStep(absl::Span<const v1::Job> runs,
                                       const schedule::CostTable& costs);

}  // namespace weft::client

#endif  // WEFT_CLIENT_SIMULATION_H_

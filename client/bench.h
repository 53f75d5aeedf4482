// What measured steps of a job say: rates, and how much of its all-to-alls is
// hidden.
#ifndef WEFT_CLIENT_BENCH_H_
#define WEFT_CLIENT_BENCH_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "nlohmann/json.hpp"
#include "weft/v1/job.pb.h"
#include "weft/v1/job_service.pb.h"

namespace weft::client {

// Steps that ran of one job, those to warm up left out.
struct BenchSteps {
  v1::TrainingJob job;
  std::vector<v1::StepMetrics> steps;
};

// The median of one number over the steps. Requires: there is a step.
double MedianOf(absl::Span<const v1::StepMetrics> steps,
                double (v1::StepMetrics::*field)() const);

// How long a step takes as it is, without its all-to-alls, and how long those
// take alone; seconds.
struct HiddenShare {
  double step = 0;
  double without = 0;
  double alone = 0;

  // 1 - (step - without) / alone: 1 when the all-to-alls cost the step nothing,
  // 0 when it takes longer by all of their time.
  double share() const { return 1 - (step - without) / alone; }
};

// Of a job and the same job with bench.exchanges left_out and alone.
// FAILED_PRECONDITION when there is nothing to hide.
absl::StatusOr<HiddenShare> HiddenShareOf(const BenchSteps& normal,
                                          const BenchSteps& left_out,
                                          const BenchSteps& alone);

// One JSON object: medians over the steps, units in the names. Requires: a
// valid job and at least one step.
nlohmann::ordered_json Report(const BenchSteps& measured,
                              const v1::MemoryPlan& memory);

}  // namespace weft::client

#endif  // WEFT_CLIENT_BENCH_H_

// Calibrate: a cost table that explains measured steps.
#ifndef WEFT_SCHEDULE_CALIBRATE_H_
#define WEFT_SCHEDULE_CALIBRATE_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "schedule/op_cost.h"
#include "schedule/overlap.h"
#include "schedule/plan.h"

namespace weft::schedule {

// What one rank measured of a step. Ranks of a step share a clock.
struct MeasuredRank {
  std::vector<Span> spans;  // by op; that of a host_wait is not read
  RoutedRows rows;
};

// One training step of all ranks of a plan's world.
struct MeasuredStep {
  const Plan* plan = nullptr;
  std::vector<MeasuredRank> ranks;  // by rank
  double step_seconds = 0;          // of the step, outside its ops too
  double median_seconds = 0;        // of steps of that job
  int cores = 0;  // that the ranks may use, all on one host; 0: unknown
};

// Fits a table. Seconds of a class of ops are a sum of non-negative terms
// (OpCost); they are fitted by least squares of relative errors in which what
// errs by more than its own size counts less and less (Huber). What counts is
// the time an op works (WorkSeconds): not that in which it waits for other
// ranks, and less where other streams slowed it down. How much they do
// (Sharing, with at most `cores` of the host, or no bound on them) is what
// brings Simulate nearest to the median seconds of the steps: with the least
// sum of absolute logarithms of their ratios. Costs are scaled so that the
// median of these ratios is 1: what is typical of ops adds up to less than a
// typical step, as delays are rare and long.
//
// INVALID_ARGUMENT when there is no step, or one without all ranks and ops.
absl::StatusOr<CostTable> Calibrate(absl::Span<const MeasuredStep> steps);

// The value in the middle; of an even number, the upper one. Requires: a value.
double Median(std::vector<double> values);

}  // namespace weft::schedule

#endif  // WEFT_SCHEDULE_CALIBRATE_H_

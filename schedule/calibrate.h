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
  int cores = 0;                    // of the host that ran all ranks
};

// Fits a table. Seconds of a class of ops are a sum of non-negative terms
// (OpCost); they are fitted by least squares of relative errors in which what
// errs by more than its own size counts less and less (Huber). What counts is
// the time an op works: not that in which a collective waits for other ranks,
// and only the share of it that its thread had a core, when more streams of the
// host worked than the table's `cores`. That number, at most `cores` of the
// host, is the one with which Simulate comes nearest to the steps' seconds.
//
// INVALID_ARGUMENT when there is no step, or one without all ranks and ops.
absl::StatusOr<CostTable> Calibrate(absl::Span<const MeasuredStep> steps);

}  // namespace weft::schedule

#endif  // WEFT_SCHEDULE_CALIBRATE_H_

// Simulate: a program's streams and waits, replayed with the costs of a table.
//
// Pure: no threads, no clock.
#ifndef WEFT_SCHEDULE_SIMULATE_H_
#define WEFT_SCHEDULE_SIMULATE_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "schedule/op_cost.h"
#include "schedule/overlap.h"
#include "schedule/plan.h"

namespace weft::schedule {

// When an op ran, seconds from the begin of the step's first op. A host_wait
// has the moment it was over twice.
struct OpTime {
  double begin = 0;
  double end = 0;
};

struct Simulation {
  double step_seconds = 0;
  // By rank simulated, by op.
  std::vector<std::vector<OpTime>> ranks;
};

// Replays one step of every rank that `rows` has an entry for: of all ranks of
// the plan's world, which then wait for each other in collectives, or of one
// that stands for all, alike in everything. INVALID_ARGUMENT for another number
// of ranks or rows that do not fit the plan; what CheckCosts says. Requires:
// the program has passed VerifyProgram.
absl::StatusOr<Simulation> Simulate(const Plan& plan, const Program& program,
                                    const CostTable& costs,
                                    const std::vector<RoutedRows>& rows);

// In whole nanoseconds, by op, as a measured step has them.
std::vector<Span> ToSpans(absl::Span<const OpTime> times);

// Seconds each stream of a rank ran ops.
std::array<double, kNumStreams> BusySeconds(const Program& program,
                                            absl::Span<const OpTime> times);

// Bytes of the arena in use from one moment to the next, by what they hold.
struct MemoryPoint {
  double seconds = 0;
  int64_t activations = 0;  // with static sizes
  int64_t routed = 0;       // rows as they came
  int64_t gathered = 0;     // weights
  int64_t gradients = 0;    // on their way to their reduction

  int64_t total() const { return activations + routed + gathered + gradients; }
};

// A point for every moment at which a value begins, with its first op, or ends,
// with the last op that uses it.
std::vector<MemoryPoint> MemoryCurve(const Plan& plan, const Program& program,
                                     absl::Span<const OpTime> times,
                                     const RoutedRows& rows);
int64_t PeakBytes(const std::vector<MemoryPoint>& curve);

}  // namespace weft::schedule

#endif  // WEFT_SCHEDULE_SIMULATE_H_

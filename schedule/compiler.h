// The compiler's steps between an order and a finished program. Callers use
// Compile() of plan.h; tests also use the parts.
#ifndef WEFT_SCHEDULE_COMPILER_H_
#define WEFT_SCHEDULE_COMPILER_H_

#include <vector>

#include "schedule/order.h"
#include "schedule/program.h"
#include "schedule/residency.h"

namespace weft::schedule {

// What of a job shapes its programs.
struct CompileOptions {
  ProgramKind kind = ProgramKind::kTrain;
  int microbatches = 1;
  fsdp::Strategy strategy = fsdp::Strategy::kOptimGradsParams;
  ResidencyBudget residency;  // see PlanStays
  int64_t reduce_bytes = 0;   // see PlaceWaits
  std::vector<int> taps;      // declared values to copy out, ascending
  // What exchanges with the EP group write has memory of its own, see
  // PoolsOfExchanges.
  bool keeps_exchanged = false;
};

// Turns an order into a program: ops on streams, with the gathers, releases and
// reductions that residency asks for, waits, and memory. A value that is tapped
// is copied right after the phase that writes it, on the same stream. A
// training program ends with the control op and the optimizer.
Program CompileOrder(const std::vector<NodePhase>& order,
                     const model::ModelDecl& model,
                     const fsdp::UnitAssignment& units,
                     const CompileOptions& options);

}  // namespace weft::schedule

#endif  // WEFT_SCHEDULE_COMPILER_H_

// Placement: which ops must have completed before an op starts. The second
// decision of the compiler.
#ifndef WEFT_SCHEDULE_PLACEMENT_H_
#define WEFT_SCHEDULE_PLACEMENT_H_

#include <vector>

#include "schedule/clock.h"
#include "schedule/program.h"

namespace weft::schedule {

// Fills Op::waits of every op with the fewest waits that imply its true
// dependencies: the writers of what it reads, the readers of what it releases,
// the writers of what it reduces. Order inside a stream needs no wait.
//
// Returns for every op the clock at its start.
std::vector<StreamClock> PlaceWaits(Program& program,
                                    const model::ModelDecl& model,
                                    const fsdp::UnitAssignment& units);

}  // namespace weft::schedule

#endif  // WEFT_SCHEDULE_PLACEMENT_H_

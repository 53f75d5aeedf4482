// Placement: which ops must have completed before an op starts. The second
// decision of the compiler.
#ifndef WEFT_SCHEDULE_PLACEMENT_H_
#define WEFT_SCHEDULE_PLACEMENT_H_

#include <cstdint>
#include <vector>

#include "schedule/clock.h"
#include "schedule/program.h"

namespace weft::schedule {

// Fills Op::waits of every op with the fewest waits that imply its true
// dependencies: the writers of what it reads, the readers of what it releases,
// the writers of what it reduces. Order inside a stream needs no wait. One more
// kind bounds memory: the first writer of a full-size gradient waits for the
// oldest reductions until at most `reduce_bytes` of gradients are in flight
// with it (or it is alone), since nothing else would ever wait for a reduction.
//
// Returns for every op the clock at its start.
std::vector<StreamClock> PlaceWaits(Program& program,
                                    const model::ModelDecl& model,
                                    const fsdp::UnitAssignment& units,
                                    int64_t reduce_bytes);

}  // namespace weft::schedule

#endif  // WEFT_SCHEDULE_PLACEMENT_H_

// The notation for ops, used in plans, timelines, traces and errors.
#ifndef WEFT_SCHEDULE_OP_NAME_H_
#define WEFT_SCHEDULE_OP_NAME_H_

#include <string>

#include "fsdp/unit/unit.h"
#include "model/declaration.h"
#include "schedule/program.h"

namespace weft::schedule {

// F<m> forward, B<m> dgrad, W<m> wgrad of microbatch m, then layer and node:
// "F1 layers.0.dispatch". A tap names the node whose value it copies: "tap F1
// layers.0.dispatch". FSDP ops name unit and axis: "gather layers.0.edp".
std::string OpName(const model::ModelDecl& model,
                   const fsdp::UnitAssignment& units, const Op& op);

}  // namespace weft::schedule

#endif  // WEFT_SCHEDULE_OP_NAME_H_

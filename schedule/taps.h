// Which values of a step can be copied out, and which a job asks for.
//
// Pure.
#ifndef WEFT_SCHEDULE_TAPS_H_
#define WEFT_SCHEDULE_TAPS_H_

#include <string>
#include <vector>

#include "model/declaration.h"

namespace weft::schedule {

// Declared values that some phase writes, ascending. Scratch has no content
// outside of its phase.
std::vector<int> TappableValues(const model::ModelDecl& model);

// Those of them that say which experts the routers chose, i32[tokens, top_k],
// by layer.
std::vector<int> RouterChoices(const model::ModelDecl& model);

// Those of them whose names match one of `globs` (see base/glob.h).
std::vector<int> MatchTaps(const model::ModelDecl& model,
                           const std::vector<std::string>& globs);

}  // namespace weft::schedule

#endif  // WEFT_SCHEDULE_TAPS_H_
